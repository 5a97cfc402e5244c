// Package exn is EXN, the network interface of a node: what a network driver
// is to a kernel (thesis section 5.4.6). It joins the frames of package exteth
// with the poll scheduling of package napi, finds the node that a frame is for,
// queues frames for which a peer has no credit, and counts.
//
// # Architecture
//
//	Transmit ─► destination MAC ─► node ─► exteth.Send ────────────► fabric
//	                  │             └ no credit ► queue of the peer ──┘ ▲
//	                  ├ broadcast ─► group 63 ──► exteth.SendGroup      OnCredit
//	                  └ IP multicast ─► Groups ───────┘
//
//	fabric ─► interrupt ─► napi poll list ─► PollVELO, PollRMA ─► Receiver
//
// If the receiver's poll list is idle, the goroutine that sends a frame also
// receives it, as Linux runs a softirq on the CPU that was interrupted. If that
// takes too long, Run's goroutine takes over.
//
// # Flow control
//
// A peer without credit has a queue. When the queue is full the interface is
// stopped (netif_stop_queue): Stopped tells its user to wait for OnReady. A
// peer whose queue does not move for Config.StallTime is stalled: it no longer
// stops the interface. Its queued frames but the first, and those that follow, are
// dropped and counted as TxStalled until it takes frames again. So a slow peer slows
// its senders, and a dead one loses only its own traffic. If no other node has a link, nobody
// else waits, and the time is Config.AwayTime.
//
// What is sent to a peer whose link has ended, and what it has not read before, waits for its
// next link, for at most Config.AwayTime: the reliable fabric of the thesis, whose links repeat
// what was lost, would deliver it, too. As many frames as one queue has may wait so; then they
// stop the interface, for as long as a peer without credit may.
//
// Group frames share one queue, so a member without credit delays the frames of
// all groups, for at most GroupStallTime; after that they are sent without it.
//
// # Ethernet
//
// With Config.Ethernet the interface is a port of a switch: stations behind the node, such
// as virtual machines on a bridge or a macvlan, have their own MAC addresses. The other
// nodes learn these from received frames, up to 1024 behind one node, and forget them after
// five minutes. A frame to an unknown address goes to all nodes. A node can claim any
// station's address, as on any Ethernet, but not the address of another node.
//
// # Capture
//
// SetTap installs a Tap that sees every frame: a received one on arrival, and a
// sent one before it is queued. Without a tap this costs an atomic load per frame.
//
// # Concurrency
//
// All methods may be called from many goroutines, Run from one. No lock is
// held while a frame is sent or received.
//
// # Limits
//
// Without Config.Groups, multicast of every IP group goes to the broadcast
// group, and the receiving hosts filter. If a stack sends from its Receiver, calls nest
// at most as deep as the process has nodes.
package exn
