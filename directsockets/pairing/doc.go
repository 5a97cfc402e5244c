// Package pairing finds the two sockets of a TCP connection when both are on this host, in
// whatever network namespaces they are, and whatever translates addresses between them.
//
// # Architecture
//
//	connect ── SYN, sequence number a ──▶ bridge, routes, NAT ──▶ listen
//	        ◀── SYN+ACK, sequence number b, acknowledges a ──
//	ESTABLISHED (a, b): opened[(a, b)] = the client's socket
//	        ── ACK ────────────────────────────────────────────▶ ESTABLISHED (a, b)
//	                                 opened[(a, b)] is there: pairs[client] = the server's socket
//
// The kernels' two ends have agreed on two initial sequence numbers of 32 bits, each a keyed hash
// of addresses and a clock (RFC 6528), which only the network between them has carried. Address
// translation leaves them as they are; a proxy in user space makes two connections of one, which
// are two pairs. So nothing is added to any packet.
//
// A program for cgroup sockets (BPF_PROG_TYPE_SOCK_OPS), at the root of the unified hierarchy,
// runs once at each end of each TCP connection of the host, when the handshake is complete. It
// keeps what a client has opened, and joins it with the server's socket if that is here, too.
//
// Who can see the numbers of somebody else's connection on the wire can open one with the same
// numbers: it could read and reset the connection as well. Such a one comes too late, as the pair
// is made with the last packet of the handshake; if two claim to be one client, or one client has
// two servers, there is no pair.
//
// Pinned in a directory (New), the program and what it keeps outlive the process, and the next one
// puts its own program in the place of that in one step: no handshake is missed.
//
// # Concurrency
//
// All methods of Pairs may be called from many goroutines.
//
// # Limits
//
// Linux 5.15 with cgroup2 and BPF, CAP_BPF and CAP_NET_ADMIN in the first user namespace. The
// last 65,536 pairs are kept, and 65,536 connections to be, each at a place that its numbers
// choose. For a second no other one takes that place: one that finds it taken stays on TCP, and so
// does one whose pair has given way to another before it was asked for. TCP Fast Open with data,
// and connections of before New, have no pair.
package pairing
