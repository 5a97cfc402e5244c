// Package txloop reads the packets that hosts send through their TUN devices
// and hands each to the stack of its node.
//
// # Architecture
//
//	TUN a ─┐                       ┌─► stack a ─► fabric ─► stack b ─► TUN b
//	TUN b ─┼─► one thread: Loop ───┼─► stack b ─► ...
//	  ...  ┘                       └─► ...
//
// One thread serves all devices of a process. It was measured against a thread
// for each: with two devices on two cores, one thread moves 30 to 38 Gbit/s
// where two move 18 to 22, because a packet that is delivered in the sender's
// goroutine leaves the answer (TCP's acknowledgement) in the queue of the
// other device, where the same thread finds it without being woken.
//
// When the queues are empty after much traffic, the thread sleeps for a moment
// before it waits for a packet: then the senders need not wake it, which on a
// virtual machine costs them more than the work itself (interrupt coalescing,
// thesis section 5.1.4). After little traffic it waits at once. Package sched
// says at which priority.
//
// # Concurrency
//
// Run takes an OS thread for itself. Wake may be called from any goroutine.
package txloop
