// Package etherhost is what joins a network interface of package exn with a TAP device: it
// carries Ethernet frames as they are, where package ipstack, with a TUN device, is an IP
// layer between the two.
//
// # Architecture
//
//	kernel IP, bridge, macvlan ─► exn0 (TAP) ─► FromHost ─────► exn ─► fabric
//	kernel IP, bridge, macvlan ◄─ exn0 (TAP) ◄─ ReceiveFrame ◄─ exn ◄─ fabric
//
// ARP, NDP, ICMP, fragments and all else of IP are the kernel's; package exn finds the
// node that a MAC address is behind. What is left to do here: the offsets of the offload
// metadata, which a TAP device counts from the Ethernet header and the fabric from the
// packet, and the memberships of IP groups. Reports of these are taken out of what leaves,
// as ipstack does, so that the node gets what is sent to the groups; they may be those of
// several hosts behind a bridge.
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// Reports in frames with a VLAN tag are carried on and not taken in: a group within a VLAN
// reaches this node only if a host without a tag is a member, too.
package etherhost
