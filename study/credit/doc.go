// Package credit models how fast HyperTransport packets go over Ethernet, by the number of
// packets in a frame and of credits that come back in one (J. Young's thesis, 2013, section
// 6.4.2, figures 36 to 38).
//
// # Architecture
//
//	sender                                         receiver
//	credits ▶ mapping ▶ encapsulation ══ Ethernet ══▶ decapsulation ▶ queue ▶ buffer is free
//	   ▲                                                                            │
//	   └─ decapsulation ◀══ Ethernet ══ encapsulation ◀── so many NOPs in a frame ◀─┘
//
// A credit is a buffer of the receiver. Each virtual channel (posted, non-posted, response)
// has its own, and a frame has packets of one channel only. The stages take what table 9 of
// the thesis says for one packet; each byte more takes a nanosecond, eight bytes a cycle of
// 125 MHz, and 0.8 ns on the link.
//
// # Concurrency
//
// A simulation is one goroutine, and the same for the same Config.
//
// # Limits
//
// The sender always has packets, and sends full frames only. Nothing is lost.
package credit
