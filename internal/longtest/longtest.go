// Package longtest leaves tests that take long to the whole check.
//
// # Architecture
//
// One function, which such a test calls first. "check.sh quick" and "go test -short" skip it then,
// and list it with the reason; "check.sh" runs it.
//
// # Concurrency
//
// Each test calls it for itself.
//
// # Limits
//
// For tests only. Long is what takes more than some two seconds of CPU, or ten of waiting, and
// finds little that a shorter test does not.
package longtest

import "testing"

// Skip skips t in the short form.
func Skip(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: left to the whole check (check.sh)")
	}
}
