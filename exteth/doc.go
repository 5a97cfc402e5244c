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
// An eager frame needs no buffer of the sender once Send has returned. A
// rendezvous frame stays in its TxBuffer, which is lent to the one node that
// may GET it, until the responder notification says that it was read. The
// receiver's GET has no memory of its own as sink but a window of a device
// (atu.Device): the data goes from the sender's buffer straight to where the
// Receiver puts it, with no copy in between. The sender can change it meanwhile, so
// the Receiver gets a foreign.Frame: the first HeadLen bytes are private, and nothing
// decides by the rest.
//
// Notifications carry the address of the last RMA packet of a transfer, and
// are matched to it by equations 5.1 and 5.2 (section 5.4.2.2).
//
// Broadcast and multicast frames of any size go as VELO multicast messages,
// for RMA has no multicast (section 5.4.5.2).
//
// The formats are in docs/frame-format.md.
//
// # Concurrency
//
// Alloc, Free and the sending methods may be called from many goroutines.
// PollVELO and PollRMA have one caller at a time (package napi sees to that). No
// lock is held while a Receiver, or a handler of Config, runs, so it may send.
//
// # Limits
//
// A frame is at most 8 MB by the format (one RMA transaction, section 5.4.3),
// and at most Config.MaxFrame by configuration. A node has MaxTransfers GETs
// under way at the most, and a quarter of them with any one peer. A peer may
// read the whole memory of a buffer that is lent to it, with what earlier frames
// left there: the nodes of a fabric trust each other with what they send.
package exteth
