// Package wire is the link between NICs over a medium that carries packets and
// may lose, damage, repeat, reorder or delay them, or be cut. Everything arrives
// above it once, in order and intact, or the link is declared down.
//
// # Architecture
//
//	VELO, RMA                                              VELO, RMA
//	   │ messages: open, velo, get, data, put, ...             ▲
//	   ▼                                                       │
//	 Link ── response ───┐
//	      ── non-posted ─┼ in turn, ──▶ arq ══ packets ══▶ arq ┘
//	      ── posted ─────┘ by credit     ▲    Medium,      │
//	                                     └═══ Faults ══════┘
//	                                        acknowledgements
//
// Messages travel on three virtual channels, as HyperTransport over Ethernet has them (thesis
// 004, chapter 5): answers, with the data of GETs; requests for data; all else. Each has credits
// of its own, one for each buffer of the receiver, and a message enters the replay buffer only
// with a credit. The receiver works off answers and posted messages at once; a GET keeps its
// buffer until its answer is on the way. So requests wait for answers, but answers for nothing,
// whatever the two ends ask of each other. A transfer is split every 496 bytes; the channels take
// turns, answers first.
//
// At most 32 GETs of a direction are on the way, each under a tag that the answers name. A NIC's
// own operations are remapped to these and back; an answer to a tag that is free, or was used
// again meanwhile, is a breach. Each link has its own, so that those of two peers never meet.
//
// A link is what HToE calls a virtual link: credits, tags and numbers of one pair of nodes. When
// it ends (its peer dies, is silent, breaks the protocol, or Fabric.Reset ends it), every
// operation on it ends with an error at once, also if part of its data has come, and other links
// do not notice. The signal of a reset is the end of the medium.
//
// A packet has a CRC, a sequence number, the acknowledgement of the other
// direction and the channels' credits. The
// sender keeps unacknowledged packets in a replay buffer and goes back to the
// oldest when the receiver asks for it (a packet is missing or damaged) or is
// silent (go-back-N, thesis section 3.2: EXTOLL's link does the same in hardware).
// If packets are outstanding and none is acknowledged within Config.DownAfter, the
// link is down: every operation on it ends with an error. An idle link is probed
// while an answer is outstanding, so that a cut is found just as soon.
//
// One goroutine, the pump, owns the packets; a second makes the calls that may run
// handlers of the NIC.
//
// Pipe is the medium of one process, with Faults on each direction. Fabric joins
// NICs by such links, all to all. Over makes a medium of a connected Unix socket, for
// links between processes, OverStream one of a TCP connection, for links between hosts.
//
// # Format
//
// Both ends begin with a hello: "EXNW", the version (2 bytes, now 2), 2 bytes of zero. An end of
// another version is refused with ErrVersion. Then come packets, little endian, each a header and
// at most one message:
//
//	offset  bytes
//	     0  1      version 0xE2
//	     1  1      flags: 1 has a number and a message, 2 asks to go back to the acknowledged packet
//	     2  2      length of the message, at most 505
//	     4  4      number of the packet, for those with a message
//	     8  4      acknowledgement: number of the packet expected next
//	    12  3 × 2  for each channel (response, non-posted, posted) the number of the first message,
//	               modulo 2^16, for which the sender of this packet has no buffer
//	    18  2      zero
//	    20  4      CRC-32C of the packet, with this field zero
//	    24         message
//
//	channel     messages                                 buffers  its receiver frees the buffer
//	response    data and end of a GET, end of a PUT,     128      at once
//	            credits and state of mailboxes, probes
//	non-posted  GET                                      32       when the end of the data is sent
//	posted      VELO messages, PUT and its data,         128      at once
//	            opening of a mailbox
//
// # Concurrency
//
// All methods may be called from many goroutines. Link.mu guards the protocol's
// state; no lock is held while a NIC is called, but AcceptFlow and LendGet, which
// run no handlers, are called by the pump.
//
// # Limits
//
// The protocol costs two copies and about a microsecond a packet. It is for study and
// tests, and for media that need it; in memory, mem and shm do without. At most 32 GETs and
// 64 PUTs of a direction move at a time, others wait.
package wire
