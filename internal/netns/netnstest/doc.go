// Package netnstest has what tests that build network namespaces share: they
// skip with the reason where that is not possible, and they leave nothing.
//
// # Limits
//
// CheckFDs counts the descriptors of the process, so it is not for tests that
// run in parallel with others.
package netnstest
