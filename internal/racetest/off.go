//go:build !race

// Package racetest says whether the race detector is on.
//
// # Architecture
//
// A constant, set by the build tag, and a function for the tests that skip by it.
//
// # Concurrency
//
// A constant.
//
// # Limits
//
// For tests only.
package racetest

// Enabled is true in a build with -race. sync.Pool forgets things there on
// purpose, so that allocation budgets cannot be measured.
const Enabled = false
