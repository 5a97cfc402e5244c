// Package netnstest has helpers for tests that build network namespaces: such
// tests skip, with the reason, where that is not possible, and leave nothing
// behind.
//
// # Limits
//
// CheckFDs counts the descriptors of the process, so it is not for tests that
// run in parallel with others.
package netnstest
