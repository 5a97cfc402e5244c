// Package testlab is what the end-to-end tests, and other tests with programs and brokers,
// share: programs that are built for them and run beside them, brokers, what they all say, and
// whether they leave a process behind.
//
// # Architecture
//
//	test, test/killmatrix, test/pressure, test/soak, test/suites, cmd/exn-go/exngo, directsockets
//	     └─▶ testlab ─▶ broker, hostnet, netns, tun
//
// # Concurrency
//
// An Output may be written and read by many goroutines.
//
// # Limits
//
// For tests only; what it makes goes when the test ends, but for what Build has built.
package testlab
