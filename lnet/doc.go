// Package lnet is LNET, Lustre's network layer, over an EXTOLL NIC: Put and Get
// between nodes, which the target matches by portal and match bits, and events
// that say how they went (thesis chapter 6, EXLND).
//
// # Architecture
//
//	initiator                                  target
//	Put ── VELO: header + source NLA ────────► match entry ─► RMA GET ──┐
//	 SEND ◄── responder notification ◄──────────────────────────────────┤
//	 ACK  ◄── VELO: header ◄────────── PUT ◄── completer notification ◄─┘
//
//	Get ── VELO: header + sink NLA ──────────► match entry ─► RMA PUT ──┐
//	 SEND, REPLY ◄── completer notification ◄───────────────────────────┤
//	                                   GET ◄── requester notification ◄─┘
//
// A message of at most Config.Immediate bytes, an ACK, and any message without
// bytes go by VELO alone, in pieces of 120 bytes. Three descriptor queues find the
// message of a notification by its writer, its node and its address, which is that
// of the last fragment for all three (docs/design/fabric.md). A message that matches
// nothing is refused by a NAK.
//
// The comments give the names of Lustre, and the formats.
//
// # Exports
//
// They are LNET's own calls, descriptors, events and header, so there are more than 40.
//
// # Concurrency
//
// All methods may be called from many goroutines, but Poll, Run and Close by one
// at a time. Handlers run in the goroutine of Poll, Run or Close, one at a time,
// without a lock: they may call Put, Get, Unlink and whatever attaches.
//
// # Limits
//
// A message has at most 1 MB. There are no routers, no LNET_MD_TRUNCATE (what does
// not fit does not match), and one process per node and VPID. A peer may read a
// GET's or PUT's memory, or write a sink, until the operation's last event, and no
// longer.
package lnet
