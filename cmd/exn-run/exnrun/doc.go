// Package exnrun is the program exn-run: it runs a program with the preload library
// of direct sockets.
//
// # Architecture
//
//	exn-run ──► Rules (file ► EXNET_RULES) ┐
//	        ──► FindProgram (ELF)          ├─ environment ──exec──► program + library
//	        ──► preload.Build, broker      ┘                          │
//	                                                                  ▼
//	            broker: a node's daemon, or a detached exn-run ◀── HELLO, OFFER, CLAIM
//
// With --explain exn-run stays as the program's parent, and relays between
// program and broker:
//
//	program ── HELLO + statistics ──► tap ──► broker
//	                                   └─ watch: the table of each process, read while
//	                                      it writes, and once more when it has ended
//
// A static program gets the library by a tracer (package inject), which exn-run starts before it
// becomes the program.
//
// "exn-run broker" starts a detached process, a child of init, that serves this network namespace
// when no daemon does. Every exn-run in the namespace shares it; it ends some seconds after its
// last client, and after the last program that exn-run became.
//
// With --libfabric there are no direct sockets: exn-run is the program's parent, and has in
// itself the ports of a node (package ports), which libfabric's provider in the program finds by
// EXN_PORTS.
//
// # Concurrency
//
// Run runs on the main goroutine. Each type says which methods may be called
// from many.
//
// # Limits
//
// Signals that are ignored when exn-run starts, other than SIGHUP and SIGINT, have
// their default meaning in the program: the Go runtime takes them.
package exnrun
