// Package rpc has what the protocols between the processes of a host share: the versions that both
// sides of a session speak.
//
// # Concurrency
//
// Everything here is a value.
//
// # Limits
//
// A release and the next one have a version in common. Others may have none.
package rpc
