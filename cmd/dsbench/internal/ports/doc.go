// Package ports measures the ports of a node's NIC between two C programs by librma2 and
// libvelo2: the command "dsbench ports".
//
// # Architecture
//
//	Measure ─▶ Take ─▶ a node of its own (exnet/ports), without a network
//	              └─▶ pingpong.c of ports/lib, compiled with the libraries ─▶ lines ─▶ rows
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// It needs a C compiler. What it measures are the libraries of this build, not those that are
// installed.
package ports
