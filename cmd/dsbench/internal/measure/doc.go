// Package measure has the one shape of what dsbench measures: a name, what it measures, its flags,
// and a run that prints figures.
//
// # Architecture
//
//	Measure ── Command ──▶ a command of dsbench
//	   └─ Define ──▶ Run: Check the flags ──▶ Take the figures ──▶ rows (package result) ──▶ Env.Stdout
//
// Package bench lists all measures. Those over paths (stream, pingpong, ...) are a table
// there; those that need more (MPI, ports, real programs) have a package each.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// What draws figures (report) is no measure.
package measure
