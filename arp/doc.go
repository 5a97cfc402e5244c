// Package arp maps between IP addresses, MAC addresses and node IDs (thesis
// 5.4.4).
//
// The resolution itself, ARP (RFC 826) and NDP (RFC 4861), is done by netstack
// as on any Ethernet. This package has what is EXTOLL's own: a MAC address
// contains the node ID, so that a resolved MAC address says where to send; and
// the table in which the fast path finds the result.
//
// # Architecture
//
//	 IP address ──ARP, NDP (netstack)──► MAC address ──Prefix.Node──► node ID
//	      │                                                              ▲
//	      └────────────── Table: one look-up for each packet ────────────┘
//
//	MAC address, figure 5.13:
//
//	     0      1      2      3      4      5
//	  ┌──────┬──────┬──────┬──────┬──────┬──────┐
//	  │  2E  │  87  │  04  │  07  │   node ID   │  big endian
//	  └──────┴──────┴──────┴──────┴──────┴──────┘
//	   Prefix, configurable
//
// Table is a hash table with open addressing, of slots that are written
// atomically: an entry is one 64-bit word, and the key beside it is written
// once. So a reader takes no lock, makes no copy and, mostly, touches one cache
// line. Growing and getting rid of removed keys replaces all slots at once; a
// reader on the old ones finds what was there. A copy-on-write map would copy
// up to 65,536 entries for each neighbour that comes, and chains of nodes read
// half as fast when the table is large.
//
// # Concurrency
//
// Table.Lookup may be called from any number of goroutines at any time; the
// methods that write, too: they exclude each other by a mutex. All else are
// values.
//
// # Limits
//
// A Table has at most the entries that it was made for. When it is full, Put
// refuses and counts: the packets to the other destinations take the slow path,
// through netstack, until neighbours go. Entries do not age here, netstack's
// neighbour cache says when one is over.
package arp
