// Package txloop is the thread that carries the packets of a process: it reads
// what hosts send through their TUN devices and hands each packet to the stack of
// its node, and serves the links over which packets come from other processes.
//
// # Architecture
//
//	TUN a ─┐                       ┌─► stack a ─► fabric ─► stack b ─► TUN b
//	TUN b ─┼─► one thread: Loop ───┼─► stack b ─► ...
//	  ...  │                       └─► link ─► ring, and bell if the peer waits
//	link  ─┘ Serve ─► pump ─► NAPI poll ─► GET from the peer's memory ─► TUN
//
// One thread serves all devices of a process. It was measured against a thread
// for each: with two devices on two cores, one thread moves 30 to 38 Gbit/s
// where two move 18 to 22, because a packet that is delivered in the sender's
// goroutine leaves the answer (TCP's acknowledgement) in the queue of the
// other device, where the same thread finds it without being woken.
//
// It is the link.Driver of the process's links for the same reason. With a
// goroutine for each link, two daemons moved 11 Gbit/s and used 1.3 CPU seconds
// for a gigabyte: each burst woke a thread in the Go runtime's poller, and its
// answer the one that reads the TUN. One thread in each process moves 22 to 31, at
// 0.5 to 0.7 seconds.
//
// When nothing is left to do after much traffic (load), the thread sleeps for a
// moment before it waits for a packet: then the senders need not wake it, which
// on a virtual machine costs them more than the work itself (interrupt
// coalescing, thesis section 5.1.4), and the programs have the CPU for long enough
// to find their data in its cache. The links are not armed meanwhile, so that the
// peers do not ring. After little traffic it waits at once, unless waits have been
// short: then it looks repeatedly for a moment, at the programs' priority, and
// leaves the CPU to them between two looks (spin). Beside programs that do not give it back
// soon it looks at its own priority, where request and answer take turns (glance). Package sched
// says at which priority it does all else.
//
// When nothing comes for a while the goroutine rests in the Go runtime's poller (rest),
// and the first packet wakes one thread.
//
// Where CPUs are few, the thread of a process with one device moves to the CPU of
// the programs that send through it (follower).
//
// # Concurrency
//
// Run takes an OS thread for itself when it naps or follows, until it rests. Take and Wake may be
// called from any goroutine. A Loop that waits says so before it looks whether it was woken, and
// arms each link before it looks whether that has something to do.
//
// # Limits
//
// A link or device that always has something to do does not keep the others from
// their turn, but makes it come later: by up to 128 KB of packets for each device
// and 64 messages for each link.
package txloop
