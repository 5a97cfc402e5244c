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
// A descriptor proves a right: a client that shows a connected socket may offer or
// claim for its addresses, one that shows a listening socket may announce it. It
// shows an O_PATH descriptor, which does not keep the socket open; the kernel says
// (sock_diag) which socket that refers to. A socket of another namespace proves
// nothing. Two parties are trusted with addresses instead: the broker's own process
// (Server.Client, for connections of a TCP stack in user space, which have no
// descriptor to show), and the brokers of the fabric's other nodes, each for its own
// addresses only.
//
// An offer for a connection to an address of another node goes to that node's
// broker, descriptors and all, and its outcome comes back:
//
//	client ─ OFFER ─▶ broker of node 1 ─ offer ─▶ broker of node 2 ─ GRANT ─▶ client
//	       ◀ REFUSED ─        ▲────────── result ─┘
//
// Package wire has their messages, package packet sends them. Package client is a
// program's side, and connstats the table of its connections, which the broker reads.
//
// Established connections do not need the broker. When it dies, offers stop until
// clients have found the next one and announced their listeners again.
//
// # Concurrency
//
// A goroutine for each client reads its messages. One lock guards all tables, and is
// never held over a system call that could sleep. The broker waits for no client:
// messages that a client does not read are queued up to a limit, beyond which it is
// disconnected; requests that come too fast are read later (pace); descriptors that
// take long to close are closed by a goroutine of the client's owner (package trash). All
// methods of Server may be called from many goroutines.
//
// Locks: client.Client.mu → Server.mu (in one process) → packet.Outbox.mu, inbox.mu,
// localWay.mu, trash.Bin's.
//
// # Limits
//
// Linux 5.14 (SO_NETNS_COOKIE on Unix sockets) with sock_diag for TCP (INET_TCP_DIAG)
// on a little-endian machine. One broker in a namespace. Each client has at most 1024 open
// offers and 4096 listeners; what a container, a user and all users may have is in quota.go.
package broker
