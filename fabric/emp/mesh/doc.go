// Package mesh lets the nodes of several hosts find each other over the network: it is
// the second home of package emp, beside the directory of a host.
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
// link. They live and end together: the first to find the peer gone takes the others
// down, and the pair starts again. A node judges a peer by this connection alone, never
// by a third node's opinion.
//
// A node dials the members that it is given, learns the names and addresses of the others (rumors),
// and dials these: at once if it has the higher ID, after a second if it has the lower one, as the
// network may be open in one direction only. It keeps looking for a lost peer for a day, at least
// every ten seconds, so a partition heals without help. It keeps looking for nodes that it has not
// met while any member reports them. What each member may report is bounded and dialed in a turn of
// its own (turns.go), so that a lying member does not keep others from being found. From time to
// time a node compares a digest of its members with one of the others; if they differ, both send
// everything they know. So two nodes that joined through different members at the same time find
// each other.
//
// # Why not a gossip protocol
//
// HashiCorp's memberlist (SWIM) gives N nodes membership and failure detection with a few
// messages a second each, whatever N is, by asking third parties. Here every pair has a link
// with its own heartbeat anyway: whether that link works is the question, and the link itself
// answers it. Suspicion, indirect probes and refutation would only add a second answer, which
// may disagree. Its packets would need a framing over TCP (as in Alertmanager) that takes as
// many connections as the sessions here; its clock is the system's, so that hundreds of nodes
// cannot be simulated; and it has no place for "this ID is taken". The exchange here is 300
// lines without a clock (book), simulated with 512 nodes. Beyond some thousand nodes the full
// mesh of links becomes the limit first.
//
// # Security
//
// With a Store, a caller has to show a certificate that the trust file vouches for, for this
// fabric, and to be the node that the certificate names. Otherwise it gets no name and no member
// list: only the alert and this node's certificate, which TLS shows to any caller. Until then it
// occupies one of a bounded number of places for a bounded time (gate). A node believes a member
// about which other members exist, and where; a node that it dials because of that has to
// authenticate itself.
//
// # Concurrency
//
// Locks: Mesh.mu → session.mu. Neither is held while anything is sent or waited for. Each
// session has a goroutine that reads, one that writes and one that holds the link.
//
// # Limits
//
// Connections and rumors grow with the square of the number of nodes: docs/hosts.md has
// figures. No node forwards for others: in each pair, at least one node has to reach
// the other.
package mesh
