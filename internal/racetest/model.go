package racetest

import "testing"

// SkipModel skips the test of a model with -race. It explores all orders in one goroutine; check.sh
// full runs such tests, which it knows by their names, without the race detector.
func SkipModel(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("nothing is concurrent in a model")
	}
}
