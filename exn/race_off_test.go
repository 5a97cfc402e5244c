//go:build !race

package exn

const raceEnabled = false
