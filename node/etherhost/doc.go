// Package etherhost joins a network interface of package exn to a TAP device: it carries
// Ethernet frames unchanged, where package ipstack, with a TUN device, is an IP layer
// between the two.
//
// # Architecture
//
//	kernel IP, bridge, macvlan ─► exn0 (TAP) ─► FromHost ─────► exn ─► fabric
//	kernel IP, bridge, macvlan ◄─ exn0 (TAP) ◄─ ReceiveFrame ◄─ exn ◄─ fabric
//
// The kernel handles ARP, NDP, ICMP, fragments and the rest of IP; package exn finds the
// node that a MAC address is behind. Two tasks remain here: the offsets of the offload
// metadata, which a TAP device counts from the Ethernet header and the fabric from the
// packet, and the memberships of IP groups. As in ipstack, outgoing membership reports are
// intercepted, so that the node receives the groups' frames; they may come from several
// hosts behind a bridge.
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// Reports in frames with a VLAN tag pass through unread: a group within a VLAN reaches
// this node only if a host without a tag is a member, too.
package etherhost
