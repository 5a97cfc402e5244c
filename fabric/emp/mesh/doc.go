// Package mesh has the nodes of several hosts find each other over the network: it is the
// second home of package emp, beside the directory of a host.
//
// # Architecture
//
//	--join HOST ──► dial ─► TLS ─► hello ──► session ◄── hello ◄─ TLS ◄─ accept
//	                 ▲      (identity)     │ rumors, digests, groups,   gate: few strangers
//	                 │                     │ signs of life               at a time
//	        whom, when                     ▼
//	               book ◄──────────── rumors: node, token, address
//	                                       │
//	                 data connections ─────┴──► Linker(conns, peer) ─► emp.Link
//
// Every pair of nodes has a control connection and, with it, the data connections of a
// link. They live and end together: whichever finds the peer gone takes the others down,
// and the pair begins anew. What a node is for another one is what this connection says,
// and never a third one's opinion.
//
// A node dials the members that it was told of, gets the names and addresses of the others
// (rumors), and dials these: at once if its ID is the higher one, after a second if it is
// the lower one, as the way may be open in one direction only. Whoever was connected once
// is looked for again for a day, at least every ten seconds, so a partition heals by
// itself. From time to time a node compares a digest of its members with one of the
// others, and if they differ both tell all that they know. So two who joined through
// different members at the same time find each other.
//
// # Why not a gossip protocol
//
// HashiCorp's memberlist (SWIM) gives N nodes membership and failure detection with a few
// messages a second each, whatever N is, by asking third parties. Here every pair has a
// link with a heartbeat of its own in any case: whether that works is the question, and it is
// answered by looking at it. Suspicion, indirect probes and refutation would only bring a second
// answer, which may be another one. Its packets would need a framing over TCP (as in
// Alertmanager) that takes as many connections as the sessions here; its clock is the
// system's, so that hundreds of nodes cannot be simulated; and it has no place for "this ID
// is taken". The exchange here is 300 lines without a clock (book), simulated with 512
// nodes. Beyond some thousand nodes it is the full mesh of links that has to go first.
//
// # Security
//
// With a Store, whoever connects shows a certificate that its trust file vouches for, for
// this fabric, and is the node that the certificate names, or gets nothing: no name, no
// member list, nothing but the alert and this node's certificate, which TLS shows to whom
// it speaks with. Before that it may have one of a bounded number of places for a bounded
// time (gate). A member is believed as to who else is there and where; whoever is dialed
// because of that has to show who it is.
//
// # Concurrency
//
// Locks: Mesh.mu → session.mu. Neither is held while anything is sent or waited for. Each
// session has a goroutine that reads, one that writes and one that holds the link.
//
// # Limits
//
// Connections and rumors grow with the square of the number of nodes: docs/hosts.md has
// figures. No node forwards for others: each pair has to reach each other, in one
// direction at least.
package mesh
