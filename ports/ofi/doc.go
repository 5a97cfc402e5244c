// Package ofi has the sources of libexnet-fi.so, a provider of libfabric on the NIC of a node: Open
// MPI and other programs for libfabric run on it unmodified (docs/libfabric.md). The Makefile
// builds it; the package itself has tests only.
//
// # Architecture
//
//	Open MPI ── libfabric ── ofi_rxm ── libexnet-fi.so ── VELO mailbox, RMA port ── the peer's
//	                                        └── TCP over exn0: to connect, and to see the peer's end
//
//	src/init.c, info.c, addr.c   what the provider offers, and at which addresses
//	src/domain.c, fork.c         fabrics and domains; a domain has one mailbox and one RMA port
//	src/pep.c, cm.c, eq.c        how endpoints connect
//	src/state.c                  the life of a connection, and of an operation: states, events, steps
//	src/ep.c, msg.c, srx.c       endpoints, and what programs call
//	src/out.c, ring.c            what an endpoint sends; where its peer reads it
//	src/progress.c, in.c         what arrives
//	src/mr.c, cq.c, cntr.c       memory, completions, counters
//	src/wire.h                   the messages
//	ctest/                       test programs
//
// It uses librma2 and libvelo2 (folder ../lib), which are linked in, and libfabric's public
// headers.
//
// # Concurrency
//
// One lock for each fabric. There is no thread: the calls that read completions move data, and
// those that read events connect.
//
// # Limits
//
// Endpoints of type FI_EP_MSG; ofi_rxm makes FI_EP_RDM of them. docs/libfabric.md has
// the others.
package ofi
