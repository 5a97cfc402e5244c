// Package multicast maps IP multicast groups to the multicast groups of the
// fabric, and knows which IP groups a node is a member of. The thesis leaves
// this open: "the software would need to keep track of group members and
// facilitate the routing tables accordingly" (section 5.4.5.3).
//
// # Architecture
//
//	kernel, netstack ── IGMP, MLD reports ──► Members ── Join, Leave ──► Registry
//	              ▲                              │                          │
//	              └─────── general queries ──────┘         fabric group 1..62 of the
//	                                                       IP group, members in the
//	                                                       routing tables of all nodes
//	sender: IP group of a frame ──► Registry.Lookup ──► fabric group      ◄─┘
//
// Members reads the reports that leave a node (IGMPv1, v2 and v3, MLDv1 and v2)
// and joins or leaves groups accordingly. It is a member of a group unless the
// host's filter is INCLUDE with no source: which sources a program wants is for
// the host to filter. There is one reporter behind it and no other host that
// could be a member, so a leave needs no query for last members. Reports end
// here, as at a switch without a router (RFC 4541, section 2.1.1): no other
// host needs them, and one that hears a report of version 1 or 2 suppresses its
// own. A membership that is not reported again lapses; for that, Members asks
// for general queries, each node its own host (RFC 3376 section 8, RFC 3810
// section 9: 125 s, and 260 s until a membership lapses).
//
// A Registry gives an IP group one of the fabric groups 1 to 62, from the first
// member's join to the last one's leave, and enters the members in the routing
// tables of all other nodes. Local is the one for nodes in one process;
// Allocator and Table are its parts.
//
// # Group 63
//
// Group 63 reaches everybody. It carries what everybody is in (Everybody): the
// groups that hosts do not report, or whose frames must arrive also before they
// do. These are 224.0.0.0/24 (RFC 4541, section 2.1.2), ff02::/120 and the
// solicited-node groups of NDP (ff02::1:ff00:0/104), of which each node has
// several and which carry a packet for each new neighbour: 62 groups would not
// go far. And it carries the IP groups that find no fabric group free; such a
// group stays in 63 until its last member leaves.
//
// A group without members has no entry, and a frame to it is not sent.
//
// # Concurrency
//
// Members, Local and Table may be used from many goroutines. Table.Lookup takes
// no lock and does not allocate. Locks: Members.mu → Local.mu → those of the
// routing tables and of Table.
//
// # Limits
//
// No multicast routers: a router on the fabric hears no reports, so it does not
// learn of members there. Sources are not filtered on the fabric.
package multicast
