// Package wire is the link between NICs over a medium that carries packets and
// may lose, damage, repeat, reorder or delay them, or be cut. Everything arrives
// above it once, in order and intact, or the link is declared down.
//
// # Architecture
//
//	VELO, RMA                                              VELO, RMA
//	   │ messages: open, velo, get, data, put, ...             ▲
//	   ▼                                                       │
//	 Link ── split every 496 bytes ──▶ arq ══ packets ══▶ arq ─┘
//	                                    ▲    Medium,      │
//	                                    └═══ Faults ══════┘
//	                                       acknowledgements
//
// A packet has a CRC, a sequence number, the acknowledgement of the other
// direction and the number of packets that its receiver still has room for. The
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
// # Concurrency
//
// All methods may be called from many goroutines. Link.mu guards the protocol's
// state; no lock is held while a NIC is called, but AcceptFlow and LendGet, which
// run no handlers, are called by the pump.
//
// # Limits
//
// The protocol costs two copies and about a microsecond a packet. It is for study and
// tests, and for media that need it; in memory, mem and shm do without. At most 64
// PUTs and GETs of a direction move at a time, others wait.
package wire
