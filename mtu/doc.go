// Package mtu gives MTUs their units and their limits.
//
// Two sizes are called "MTU" in a network driver, and they differ by the
// Ethernet header (thesis 5.4.3). Here each has its own type:
//
//	Link     bytes of a whole Ethernet frame, header included, without the
//	         frame check sequence: EXT-Eth frames have none, the EXTOLL
//	         packet's end (EOP) carries a CRC (thesis figure 5.7)
//	Network  bytes of an IP packet: what "ip link" shows as mtu
//
//	 ◄─────────────── Link ───────────────►
//	┌───────────┬───────────┬──────┬───────────────────────────┐
//	│ dst MAC 6 │ src MAC 6 │ type │ IP packet                 │
//	│           │           │  2   │ ◄────── Network ────────► │
//	└───────────┴───────────┴──────┴───────────────────────────┘
//
// # Architecture
//
// The package has constants and checks, nothing else; other packages take their
// bounds from it. Flags parse with [Network.Set]; a program that has an int
// uses [New].
//
// # Concurrency
//
// All values are plain numbers; every function is safe for concurrent use.
//
// # Limits
//
// IPv6 jumbograms (RFC 2675), which the frame format could carry up to
// [MaxFrame], are not supported: no TUN device and no netstack accepts them.
package mtu
