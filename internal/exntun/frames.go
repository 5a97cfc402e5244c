package exntun

import (
	"fmt"
	"strings"
	"time"

	"exnet/exteth"
)

// way is one of the ways that a frame can go, with what all nodes counted.
type way struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// frames says how many frames went which way.
type frames struct {
	Eager      way `json:"eager"`
	Rendezvous way `json:"rendezvous"`
	Broadcast  way `json:"broadcast"`
}

// framesOf adds up the frames of all nodes.
func framesOf(l *lab) (f frames) {
	for _, n := range l.cluster.Nodes {
		f.add(n.Interface.Stats().Port)
	}
	return f
}

func (f *frames) add(s exteth.Stats) {
	f.Eager.Sent += s.TxEager
	f.Eager.Received += s.RxEager
	f.Rendezvous.Sent += s.TxRendezvous
	f.Rendezvous.Received += s.RxRendezvous
	f.Broadcast.Sent += s.TxGroup
	f.Broadcast.Received += s.RxGroup
}

// minus returns what was counted after g was.
func (f frames) minus(g frames) frames {
	return frames{f.Eager.minus(g.Eager), f.Rendezvous.minus(g.Rendezvous), f.Broadcast.minus(g.Broadcast)}
}

func (w way) minus(v way) way { return way{w.Sent - v.Sent, w.Received - v.Received} }

// String is one line for people.
func (f frames) String() string {
	return fmt.Sprintf("%d frames eagerly, %d by rendezvous, %d by broadcast",
		f.Eager.Sent, f.Rendezvous.Sent, f.Broadcast.Sent)
}

// lost returns in words what was sent and did not arrive, "" if nothing. A
// broadcast frame of n nodes arrives at n-1.
func (f frames) lost(n int) string {
	switch others := uint64(n - 1); {
	case f.Eager.Sent != f.Eager.Received:
		return fmt.Sprintf("%d eager frames sent, %d received", f.Eager.Sent, f.Eager.Received)
	case f.Rendezvous.Sent != f.Rendezvous.Received:
		return fmt.Sprintf("%d rendezvous frames sent, %d received", f.Rendezvous.Sent, f.Rendezvous.Received)
	case f.Broadcast.Sent*others != f.Broadcast.Received:
		return fmt.Sprintf("%d broadcast frames sent to %d nodes each, %d received", f.Broadcast.Sent, others, f.Broadcast.Received)
	}
	return ""
}

// settle waits until the frames that the kernel sends as an interface comes up
// are through, but not for long. Some of them leave before the other nodes are
// on the fabric, and never arrive.
func settle(l *lab) frames {
	const interval, most = 5 * time.Millisecond, 200 * time.Millisecond
	began := time.Now()
	before := framesOf(l)
	for {
		time.Sleep(interval)
		now := framesOf(l)
		if now == before || time.Since(began) > most {
			return now
		}
		before = now
	}
}

// drops tells what the IP stacks of all nodes dropped. That is not wrong in
// itself: a packet to an address that nobody has is dropped, too.
func drops(l *lab) string {
	var list []string
	for i, n := range l.cluster.Nodes {
		for name, v := range n.Stack.Stats().All() {
			if v > 0 && strings.Contains(name, "_drop_") {
				list = append(list, fmt.Sprintf("%s %d on node %d", name, v, 1+i))
			}
		}
	}
	if len(list) == 0 {
		return "no packet was dropped"
	}
	return "packets dropped: " + strings.Join(list, ", ")
}
