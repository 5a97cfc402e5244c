// Package capture writes the frames of network interfaces as pcapng, to a file
// or live to a pipe, for tcpdump and Wireshark.
//
// # Architecture
//
//	exn.Interface ── Tap ──► copy ──► queue ──► checksum ──► pcapng ──► Writer
//	 data path, never waits     bounded │        a goroutine of its own
//	                                    └► full: the frame is lost to the capture
//
// A frame in flight has offload metadata instead of a transport checksum; the
// capture computes the checksum on its copy. It does not segment: it shows
// large segments, as a capture on any interface with segmentation offload does.
// Interfaces have their names, packets their direction and time in nanoseconds,
// and the statistics at the end say how many frames there were and how many
// were lost because the writer was too slow.
//
// Direct connections have no frames. While they are kept on TCP, a Socket for each network
// namespace sees their packets, and Flows decides which of these are wanted:
//
//	Socket ── Seen ──► Watched.Take ──► Source.Packet ──► queue
//	                     ▲    └► waits, if nobody knows its connection yet
//	                     └ Know: what the namespace's broker knows, every 0.3 s
//
// # Concurrency
//
// The taps may be called from many goroutines, the other methods as well. The
// frames of different interfaces, and of the two directions of one, are written
// in the order of the queue, which may differ slightly from that of their times.
//
// # Limits
//
// Close waits for a Writer that blocks for Config.Grace, and no longer.
package capture
