// Package probe asks the other end of somebody else's TCP connection for a sign of life.
//
// # Architecture
//
//	Prober.Ask ── segment without data, one byte too old ──▶ the network ──▶ the peer's kernel
//	             the connection's socket ◀── its answer ◀── the network ◀──┘
//
// It is what the kernel's own keepalive sends (RFC 9293, 3.8.4), with the connection's addresses,
// from its network namespace: so it takes the way of its packets, through the same filters. The
// peer's kernel answers with what it expects next (RFC 9293, 3.10.7.4), to the connection's socket,
// which counts the packet and does nothing else. So nobody's program sees anything, and no option
// of any socket changes.
//
// # Concurrency
//
// One goroutine at a time may use a Prober.
//
// # Limits
//
// CAP_NET_RAW in the user namespace of the network namespace. Filters that look at a packet's owner
// (its socket's user, cgroup or mark) see that of this process. A Linux peer answers twice a second
// at the most.
package probe
