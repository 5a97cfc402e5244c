// Package longtest leaves tests that take long to the whole check.
//
// # Architecture
//
// A long test calls Skip first: "check.sh quick" and "go test -short" skip it then, and list it
// with the reason; "check.sh" runs it. One that calls Nightly runs only with -long.
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

import (
	"flag"
	"testing"
)

var long = flag.Bool("long", false, "also run the tests that the whole check leaves to the night")

// Skip skips t in the short form.
func Skip(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: left to the whole check (check.sh)")
	}
}

// Nightly skips t unless the test runs with -long.
func Nightly(t testing.TB) {
	t.Helper()
	if !*long {
		t.Skip("nightly: run it with -long")
	}
}

// All says whether the tests run with -long: then a test may do all of what it otherwise does a
// part of.
func All() bool { return *long }
