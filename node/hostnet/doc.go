// Package hostnet configures and watches the kernel's network interfaces in a
// network namespace: what "ip addr", "ip link" and "ip route" do, and "ip
// monitor".
//
// # Architecture
//
//	Open        netlink socket, opened in the namespace and bound to it for life
//	Configure   MTU, queue, addresses, up      (exn0, lo, the ends of a veth)
//	CreateVeth  a pair of interfaces in two namespaces   (the benchmark control)
//	Watch       kernel: "something changed" -> list again -> compare -> events
//
// A watcher does not rely on single messages of the kernel, which may be lost
// (ENOBUFS) and are incomplete (IPv4 routes that vanish with their interface
// are not reported). It takes them as a hint, lists everything again, and
// reports the difference, so that its reports always add up to the current
// state.
//
// # Concurrency
//
// A Conn may be used from many goroutines. The callback of a Watcher is never
// called twice at a time, and not after Close has returned.
//
// # Limits
//
// Routes are those of the main table that leave by one interface: no multipath,
// no policy routing. A watcher lists all routes of the namespace at every
// change of one, which suits hosts and not routers with a full table.
package hostnet
