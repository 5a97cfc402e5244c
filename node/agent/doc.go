// Package agent serves direct sockets to the programs of all containers of a host, whatever
// networks they have.
//
// # Architecture
//
//	/proc ──▶ namespaces ──▶ a broker for each ─┐
//	                                            ├─ broker.Group ── package pairing
//	         programs, at /run/exn/ds/ID.sock ──┘
//	         programs that start, at agent.sock ──▶ door ──▶ namespaces
//
// A process asks for direct sockets by its environment: the preload library in LD_PRELOAD, or
// EXNET=1. Its network namespace then has a broker, until no process there asks any more; so has
// the agent's own. One process serves all of them. Their brokers are a group: what an offer is for
// is found by its socket, not by its addresses.
//
// A static program that asks is attached to while it runs (attach.go, package inject), by a process
// of its own, one program of the host at a time, in turns of the accounts.
//
// When the agent ends, direct connections go on. Another agent takes over, as clients announce
// their listeners to it again; the connections that are on TCP by then stay there.
//
// # Concurrency
//
// Run has one goroutine that looks for namespaces, one that accepts at the door, and those of the
// brokers.
//
// # Limits
//
// Root of the host. Namespaces are found as a program connects to the door, which wants no answer,
// and by looking at /proc twice a second, for 25 ms each time. A
// container's broker keeps its network namespace until the agent has seen that its processes are
// gone.
package agent
