// Package suites has the tests of programs that others wrote: their own test suites, and small
// scenarios whose data is checked, each as it is (plain) and under exn-run (default, eager). What
// differs is the finding.
//
// # Architecture
//
//	test process ── nsenter ──► box: namespaces of its own, /run and /tmp empty
//	  │                           ├── exn-run --loopback -o FILE -- server
//	  │                           └── exn-run --loopback -o FILE -- client, or a unit of a suite
//	  └── verdicts, reports ──► table, JSON
//
// A box has namespaces for the network, processes and mounts: what runs in it, its broker included,
// meets nobody else's and ends with it. A checkout is seen through an overlay, so that units that
// run at the same time, or twice, write nowhere.
//
// TestRootPrograms runs the scenarios (-programs says which; -full: large loads, and MariaDB).
// Scenarios are in Go or, where a few commands do, scripts of testdata/programs.
// TestRootSuite runs the suite of -suite from -checkout; it is skipped without. A unit of a suite
// is what its own runner can run alone: a file, a test, a program. A test that passes plain and not
// under exn-run is run again (-repeat), in both ways, which tells what differs from what is flaky.
//
// # Concurrency
//
// Units run -jobs at a time, scenarios one after the other.
//
// # Limits
//
// It needs root, gcc and the go tool. Programs that are not installed are skipped, with the name of
// the Debian package. Nothing of the suites is in this repository; -checkout has to be built
// already. Ratios of time are printed and not judged. docs/results/tested.md has the results.
package suites
