package lab

import (
	"fmt"
	"strings"
	"time"

	"exnet/exteth"
)

// Way counts the frames that went one of the ways, over all nodes.
type Way struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// Frames counts frames by the way that they went.
type Frames struct {
	Eager      Way `json:"eager"`
	Rendezvous Way `json:"rendezvous"`
	Broadcast  Way `json:"broadcast"`
	// Missed counts the nodes that a broadcast frame left out, because they took nothing for
	// some time.
	Missed uint64 `json:"missed"`
	// Expired counts the rendezvous frames that were given up, because the other node had not
	// fetched them in time. One may be fetched at that moment, and then arrives.
	Expired uint64 `json:"expired"`
}

// FramesOf adds up the frames of all nodes.
func FramesOf(l *Lab) (f Frames) {
	for _, n := range l.Cluster.Nodes {
		f.addStats(n.Interface.Stats().Port)
	}
	return f
}

func (f *Frames) addStats(s exteth.Stats) {
	f.Eager.Sent += s.TxEager
	f.Eager.Received += s.RxEager
	f.Rendezvous.Sent += s.TxRendezvous
	f.Rendezvous.Received += s.RxRendezvous
	f.Broadcast.Sent += s.TxGroup
	f.Broadcast.Received += s.RxGroup
	f.Missed += s.TxMissed
	f.Expired += s.TxTimeout
}

// Minus returns what was counted since g.
func (f Frames) Minus(g Frames) Frames {
	return Frames{
		Eager:      f.Eager.minus(g.Eager),
		Rendezvous: f.Rendezvous.minus(g.Rendezvous),
		Broadcast:  f.Broadcast.minus(g.Broadcast),
		Missed:     f.Missed - g.Missed,
		Expired:    f.Expired - g.Expired,
	}
}

func (w Way) minus(v Way) Way { return Way{w.Sent - v.Sent, w.Received - v.Received} }

// String is one line for people.
func (f Frames) String() string {
	return fmt.Sprintf("%d frames eagerly, %d by rendezvous, %d by broadcast",
		f.Eager.Sent, f.Rendezvous.Sent, f.Broadcast.Sent)
}

// Lost returns in words what was sent and did not arrive, "" if nothing. A
// broadcast frame of n nodes arrives at n-1, but not at those that it left out, and a
// rendezvous frame may not arrive if it was given up.
func (f Frames) Lost(n int) string {
	switch others := uint64(n - 1); {
	case f.Eager.Sent != f.Eager.Received:
		return fmt.Sprintf("%d eager frames sent, %d received", f.Eager.Sent, f.Eager.Received)
	case f.Rendezvous.Sent < f.Rendezvous.Received, f.Rendezvous.Sent > f.Rendezvous.Received+f.Expired:
		return fmt.Sprintf("%d rendezvous frames sent, %d received, %d given up", f.Rendezvous.Sent, f.Rendezvous.Received, f.Expired)
	case f.Broadcast.Sent*others != f.Broadcast.Received+f.Missed:
		return fmt.Sprintf("%d broadcast frames sent to %d nodes each, %d received, %d left out",
			f.Broadcast.Sent, others, f.Broadcast.Received, f.Missed)
	}
	return ""
}

// waitFrames waits briefly for the frames that the kernel sends when an interface comes up, and
// returns the counts. Some of these frames leave before the other nodes are on the fabric, and
// never arrive.
func waitFrames(l *Lab) Frames {
	const interval, most, quiet = 5 * time.Millisecond, 40, 3
	now, same := FramesOf(l), 0
	for range most {
		time.Sleep(interval)
		before := now
		if now = FramesOf(l); now != before {
			same = 0
		} else if same++; same == quiet {
			break
		}
	}
	return now
}

// Drops returns in words what the IP stacks of all nodes dropped. A drop is not a fault in
// itself: packets to an address that no node has are dropped, too.
func Drops(l *Lab) string {
	var list []string
	for i, n := range l.Cluster.Nodes {
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
