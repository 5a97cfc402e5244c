// Package killmatrix kills and stops every process on the way between two programs, at
// every moment of a connection, and looks at what the others see. It prints a table.
//
// # Architecture
//
//	path          client and server                   between them
//	tcp           Go, net                             exn0, two daemons
//	go            Go, directsockets                   two daemons, whose brokers hand the segment over
//	run           Python under exn-run                same
//	run-loopback  Python under exn-run --loopback     the broker that exn-run has started
//	go-loopback   Go, directsockets                   a broker in a third Go program
//	go-relay      Go, directsockets                   two daemons on two hosts, which carry the bytes
//	run-relay     Python under exn-run                same
//
// A cell is a path, a moment (set-up, eager, rendezvous, mid-ring, teardown, returning,
// returned, passed on), a victim (client, server, either daemon, the broker) and a signal (SIGKILL,
// SIGSTOP). It is run so:
//
//	reach    a new connection is brought to the moment, and a counter proves that it is there
//	hit      the signal
//	see      what is left of the two ends has to see one of
//	           an end      end of file, reset or EPIPE in both directions, within a second
//	           a deadline  of each call, of 250 ms; when the victim goes on or was started again, all bytes come
//	           nothing     bytes go on without a break, to an end in order
//	           a reset     of both, where the daemon that was killed carried the bytes: beside it
//	                       at once, at the other end when it was started again
//	others   connections that have nothing to do with it have had no break, and are intact
//	revive   the victim goes on or is started again with the same node ID; a new connection is served, and is direct
//	freed    segments, sockets, descriptors, the TUN device of a killed daemon
//
// Both directions carry a pattern whose every byte is checked. All processes are this
// test binary again (see TestMain), or testdata/peer.py. Statistics of direct
// sockets are read from the memory of the process that keeps them, so it does not
// matter who is stopped.
//
// # Concurrency
//
// Cells run one after the other: they share daemons and bystanders.
//
// # Limits
//
// It needs root. A cell that takes too long is repeated, five times in all, because the machine may
// have other work; the delay that a thread on each CPU saw in the meantime does not count (pulse).
// Raw VELO and RMA have no cells of their own: the frames of the path tcp use them.
package killmatrix
