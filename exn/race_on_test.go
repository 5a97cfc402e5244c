//go:build race

package exn

// raceEnabled says that the race detector is on. It makes sync.Pool forget some
// of what it is given, so that allocations cannot be counted.
const raceEnabled = true
