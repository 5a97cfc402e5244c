// Package arp maps between IP addresses, MAC addresses and node IDs (thesis
// 5.4.4).
//
// netstack does the resolution itself, ARP (RFC 826) and NDP (RFC 4861), as on
// any Ethernet. This package adds what is specific to EXTOLL: a MAC address
// contains the node ID, so that a resolved MAC address names the destination,
// and the fast path looks it up in a table.
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
// Table is a hash table with open addressing, whose slots are written
// atomically: an entry is one 64-bit word, and the key beside it is written
// once. A reader takes no lock, makes no copy and usually touches one cache
// line. Growing the table, or purging removed keys, replaces all slots at once;
// a reader of the old slots finds the old entries. A copy-on-write map would
// copy up to 65,536 entries for each new neighbour, and chained nodes read half
// as fast when the table is large.
//
// # Concurrency
//
// All methods of Table may be called from any number of goroutines: Lookup
// takes no lock, and the methods that write share a mutex. Everything else is a
// value.
//
// # Limits
//
// A Table has a fixed capacity. When it is full, Put refuses and counts:
// packets to further destinations take the slow path, through netstack, until
// neighbours leave. Entries do not age here; netstack's neighbour cache decides
// when one expires.
package arp
