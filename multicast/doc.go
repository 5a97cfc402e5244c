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
// host's filter is INCLUDE with no source: the host filters by source. Only one
// host reports through it, so a leave needs no query for remaining members.
// Reports end here, as at a switch without a router (RFC 4541, section 2.1.1):
// no other host needs them, and one that hears a report of version 1 or 2
// suppresses its own. A membership that is not reported again expires; to
// refresh it, Members sends general queries to its own host (RFC 3376 section
// 8, RFC 3810 section 9: every 125 s; a membership expires after 260 s).
//
// A Registry gives an IP group one of the fabric groups 1 to 62, from the first
// member's join to the last one's leave, and enters the members in the routing
// tables of all other nodes. Local is the Registry for nodes in one process;
// Allocator and Table are its parts.
//
// # Group 63
//
// Group 63 reaches every node. It carries the groups that everybody is in
// (Everybody): those that hosts do not report, or whose frames must arrive
// before hosts do. These are 224.0.0.0/24 (RFC 4541, section 2.1.2), ff02::/120
// and the solicited-node groups of NDP (ff02::1:ff00:0/104), of which each node
// has several and which carry a packet for each new neighbour: 62 groups would
// not suffice. It also carries the IP groups for which no fabric group is free;
// such a group stays in 63 until its last member leaves.
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
// Multicast routers do not work: a router on the fabric hears no reports, so it
// does not learn of members there. The fabric does not filter by source.
package multicast
