//go:build race

package racetest

// Enabled is true in a build with -race.
const Enabled = true
