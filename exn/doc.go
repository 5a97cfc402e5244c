// Package exn is EXN, the network interface of a node: what a network driver
// is to a kernel (thesis section 5.4.6). It joins the frames of package exteth
// with the poll scheduling of package napi, finds the node that a frame is
// for, queues what a peer has no credit for, and counts.
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
// A frame is received in the goroutine that sent it when the receiver's poll
// list is idle, as Linux runs a softirq on the CPU that was interrupted; when
// that takes too long, the rest goes to the goroutine of Run.
//
// # Flow control
//
// A peer without credit has a queue. When the queue is full the interface is
// stopped (netif_stop_queue): Stopped tells whoever feeds it to wait for
// OnReady. A peer whose queue does not move for Config.StallTime is stalled:
// it no longer stops the interface, and frames that its queue has no room for
// are dropped and counted as TxStalled, until it takes frames again. So a slow
// peer slows its senders, and a dead one costs only its own traffic.
//
// Group frames have one queue, so a member without credit holds up the frames
// of all groups, for StallTime at the most; then they go on without it.
//
// # Ethernet
//
// With Config.Ethernet the interface is a port of a switch: what is behind the node, a
// bridge with virtual machines or a macvlan, has MAC addresses of its own, which the other
// nodes learn from the frames that come from it, up to 1024 behind one node, and forget
// after five minutes. A frame to one that is unknown goes to all nodes. A node can say of a
// station that it is behind it, as on any Ethernet; it cannot say so of a node.
//
// # Capture
//
// SetTap shows every frame to somebody, in both directions: what is received,
// and what is sent, before it is queued. Without a tap this costs an atomic load
// for each frame.
//
// # Concurrency
//
// All methods may be called from many goroutines, Run from one. No lock is
// held while a frame is sent or received.
//
// # Limits
//
// Without Config.Groups, multicast of every IP group goes to the broadcast
// group; the receivers' hosts filter. A stack above that feeds frames in and gets them in the same
// goroutine nests at most as deep as there are nodes in the process.
package exn
