// Package broker is the control plane of direct sockets in one network namespace:
// who listens, who offers a segment for a connection, who may have it. SPEC.md,
// section 6, is its normative text.
//
// # Architecture
//
//	program (package client)    Server                     program (package client)
//	  LISTEN proof ───────────▶ listeners ─▶ page ┄┄┄┄┄┄┄┄▶ Listener(port)?
//	                              │                        │ yes
//	                            offers ◀─────────────────── OFFER proof, segment, bell
//	  Word(bucket) ◀┄┄┄┄┄ page ◀──┤
//	  CLAIM proof ───────────▶    │
//	               ◀── GRANT ─────┘        (┄┄ memory that all clients map)
//	                              │
//	                 Peers: the brokers of the fabric's other nodes
//
// A descriptor proves a right: whoever shows that it has a connected socket may offer
// or claim for its addresses, whoever has a listening one may announce it. What is
// shown is an O_PATH descriptor, which does not keep the socket open; the kernel says
// (sock_diag) which socket it stands for. A socket of another namespace is
// worth nothing. Two parties are trusted with addresses instead: the broker's own
// process (Server.Client, for connections of a TCP stack in user space, which have
// no descriptor to show), and the brokers of the fabric's other nodes, each for its
// own addresses only.
//
// An offer for a connection to an address of another node goes to that node's
// broker, descriptors and all, and its outcome comes back:
//
//	client ─ OFFER ─▶ broker of node 1 ─ offer ─▶ broker of node 2 ─ GRANT ─▶ client
//	       ◀ REFUSED ─        ▲────────── result ─┘
//
// What they say to each other is in package wire, how it is sent in package packet. A
// program's side is package client, and connstats the table of its connections that the
// broker reads.
//
// Established connections do not need the broker. When it dies nothing is offered
// any more; clients find the next one by themselves and announce their listeners
// anew.
//
// # Concurrency
//
// A goroutine for each client reads its messages. All tables are under one lock,
// which is held for no system call that could sleep. Nobody waits for a client: what
// it does not read is queued, up to a limit, and a client beyond that is
// disconnected; what it asks too fast is read later (pace); descriptors of its that
// take long to close are closed by a goroutine of its user (trash). All methods of
// Server may be called from many goroutines.
//
// Locks: client.Client.mu → Server.mu (in one process) → packet.Outbox.mu, inbox.mu,
// localWay.mu, trash.mu.
//
// # Limits
//
// Linux 5.14 (SO_NETNS_COOKIE on Unix sockets) with sock_diag for TCP (INET_TCP_DIAG)
// on a little-endian machine. One
// broker in a namespace. Each client has at most 1024 open offers and 4096
// listeners; together the clients of one user hold at most half of the broker's
// descriptors.
package broker
