// Package longtest says which form of the check runs a test.
//
// # Architecture
//
//	longtest.Skip(t)      the full form:  check.sh full, go test
//	longtest.Nightly(t)   the nightly one: check.sh nightly, EXNET_NIGHTLY=1 go test
//	neither               the short one:  check.sh, go test -short
//
// A test that a form leaves out is skipped, and listed with the reason.
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
	"os"
	"testing"
)

// nightly is the environment variable that asks for the nightly form.
const nightly = "EXNET_NIGHTLY"

// Skip skips t in the short form.
func Skip(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: left to check.sh full")
	}
}

// Nightly skips t outside the nightly form.
func Nightly(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("nightly: run it with " + nightly + "=1")
	}
}

// All says whether this is the nightly form: then a test may do all of what it otherwise does a
// part of.
func All() bool { return os.Getenv(nightly) == "1" }
