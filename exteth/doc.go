// Package exteth is EXT-Eth, Ethernet over EXTOLL: it carries Ethernet frames
// from node to node over the two units of an EXTOLL NIC (thesis section 5.4).
//
// # Architecture
//
// A frame leaves in one of two ways, chosen by its size (section 5.4.1):
//
//	Send ── eager ──────► VELO messages of 120 bytes ───────► PollVELO ── reassembly ──► Receiver
//	  └──── rendezvous ─► VELO advert {NLA, length, offload} ► PollVELO ── RMA GET ──┐
//	                                                                              ▼
//	      buffer free ◄── PollRMA ◄── responder notification        sink window ──► Receiver
//	                                  completer notification ──► PollRMA (matched, slot free)
//
// An eager frame needs no buffer once Send has returned. A rendezvous frame stays in
// its TxBuffer, which is lent to the one node that may GET it, until the responder
// notification says that it was read. The sink of the receiver's GET is a window of a
// device (atu.Device) instead of memory: the data goes straight from the sender's
// buffer to where the Receiver puts it, with no copy in between. The sender can
// change it at any time, so the Receiver gets a foreign.Frame: the first HeadLen
// bytes are a private copy, and no decision depends on the rest.
//
// A notification carries the address of the last RMA packet of a transfer;
// equations 5.1 and 5.2 match the two (section 5.4.2.2).
//
// Broadcast and multicast frames of any size go as VELO multicast messages,
// since RMA has no multicast (section 5.4.5.2).
//
// The formats are in docs/design/frame-format.md.
//
// # Concurrency
//
// Alloc, Free and the sending methods may be called from many goroutines.
// PollVELO and PollRMA have one caller at a time, as package napi ensures. No
// lock is held while a Receiver or a handler of Config runs, so it may send.
//
// # Limits
//
// The format limits a frame to 8 MB (one RMA transaction, section 5.4.3), the
// configuration to Config.MaxFrame. A node has at most MaxTransfers GETs under
// way, and at most a quarter of them with any one peer. A peer may read the
// whole memory of a buffer that is lent to it, including the remains of earlier
// frames: the nodes of a fabric trust each other with their traffic.
package exteth
