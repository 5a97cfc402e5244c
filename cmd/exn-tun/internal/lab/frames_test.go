package lab

import (
	"errors"
	"testing"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/velo"
	"exnet/foreign"
)

func TestFramesLost(t *testing.T) {
	all := Frames{Eager: Way{10, 10}, Rendezvous: Way{5, 5}, Broadcast: Way{2, 5}, Missed: 1}
	if f := (Frames{Rendezvous: Way{9, 7}, Expired: 3}); f.Lost(4) != "" { // one was fetched as it was given up
		t.Errorf("given up, but %q", f.Lost(4))
	}
	if lost := all.Lost(4); lost != "" {
		t.Errorf("all there, but %q", lost)
	}
	for _, c := range []struct {
		spoil func(*Frames)
		want  string
	}{
		{func(f *Frames) { f.Eager.Received-- }, "10 eager frames sent, 9 received"},
		{func(f *Frames) { f.Rendezvous.Sent++ }, "6 rendezvous frames sent, 5 received, 0 given up"},
		{func(f *Frames) { f.Rendezvous.Sent, f.Expired = 7, 1 }, "7 rendezvous frames sent, 5 received, 1 given up"},
		{func(f *Frames) { f.Rendezvous.Received, f.Expired = 6, 1 }, "5 rendezvous frames sent, 6 received, 1 given up"},
		{func(f *Frames) { f.Broadcast.Received-- }, "2 broadcast frames sent to 3 nodes each, 4 received, 1 left out"},
		{func(f *Frames) { f.Missed++ }, "2 broadcast frames sent to 3 nodes each, 5 received, 2 left out"},
	} {
		f := all
		c.spoil(&f)
		if lost := f.Lost(4); lost != c.want {
			t.Errorf("%+v: %q, want %q", f, lost, c.want)
		}
	}
}

func TestFramesAddAndMinus(t *testing.T) {
	var f Frames
	f.addStats(exteth.Stats{TxEager: 1, RxEager: 2, TxRendezvous: 3, RxRendezvous: 4, TxGroup: 5, RxGroup: 6, TxMissed: 7, TxTimeout: 8})
	early := f
	f.addStats(exteth.Stats{TxEager: 10, RxEager: 20, TxRendezvous: 30, RxRendezvous: 40, TxGroup: 50, RxGroup: 60, TxMissed: 70, TxTimeout: 80})
	want := Frames{Way{10, 20}, Way{30, 40}, Way{50, 60}, 70, 80}
	if got := f.Minus(early); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := want.String(); got != "10 frames eagerly, 30 by rendezvous, 50 by broadcast" {
		t.Error(got)
	}
}

// nobody takes frames and keeps none.
type nobody struct{}

func (nobody) ReceiveFrame(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }

// A node that takes nothing for a time misses some broadcast frames, one of them in the middle.
// These are not lost, and a frame that is lost is still found.
func TestFramesSlowNode(t *testing.T) {
	const nodes, before, during = 3, 3, 10
	var ports [nodes]*exteth.Port
	for i, n := range fabrictest.New(t, nodes) {
		p, err := exteth.Open(n, exteth.Config{Receiver: nobody{}, VELO: velo.Config{Slots: 16, Credits: 4}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ports[i] = p
	}
	poll := func(ports ...*exteth.Port) {
		for _, p := range ports {
			for n := 1; n > 0; n, _ = p.PollVELO(64) {
			}
		}
	}
	first, others := ports[0], ports[1:2]
	send := func(size int) {
		b := first.Alloc()
		b.SetPacket(size)
		err := first.SendGroup(fabric.GroupBroadcast, b, false)
		for errors.Is(err, exteth.ErrAgain) { // as an Interface does after its StallTime
			poll(others...)
			err = first.SendGroup(fabric.GroupBroadcast, b, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		poll(others...)
	}
	count := func() (f Frames) {
		for _, p := range ports {
			f.addStats(p.Stats())
		}
		return f
	}

	for range before {
		send(46)
	}
	send(300) // the slow node has credit for the first of its messages
	for range during {
		send(46)
	}
	poll(ports[:]...)
	others = ports[1:]
	send(46)
	want := Frames{Broadcast: Way{before + during + 2, 2*(before+during+2) - (during + 1)}, Missed: during + 1}
	if got := count(); got != want {
		t.Errorf("got %#v, want %#v", got, want)
	}
	if lost := count().Lost(nodes); lost != "" {
		t.Errorf("a slow node, but %q", lost)
	}

	b := first.Alloc()
	b.SetPacket(46)
	if err := first.SendGroup(fabric.GroupBroadcast, b, false); err != nil {
		t.Fatal(err)
	}
	poll(ports[1])
	if lost := count().Lost(nodes); lost == "" {
		t.Error("a frame is in a mailbox, but none is missing")
	}
}
