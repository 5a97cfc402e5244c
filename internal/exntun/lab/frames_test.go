package lab

import (
	"testing"

	"exnet/exteth"
)

func TestFramesLost(t *testing.T) {
	all := Frames{Eager: Way{10, 10}, Rendezvous: Way{5, 5}, Broadcast: Way{2, 6}}
	if lost := all.Lost(4); lost != "" {
		t.Errorf("all there, but %q", lost)
	}
	for _, c := range []struct {
		spoil func(*Frames)
		want  string
	}{
		{func(f *Frames) { f.Eager.Received-- }, "10 eager frames sent, 9 received"},
		{func(f *Frames) { f.Rendezvous.Sent++ }, "6 rendezvous frames sent, 5 received"},
		{func(f *Frames) { f.Broadcast.Received-- }, "2 broadcast frames sent to 3 nodes each, 5 received"},
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
	f.add(exteth.Stats{TxEager: 1, RxEager: 2, TxRendezvous: 3, RxRendezvous: 4, TxGroup: 5, RxGroup: 6})
	early := f
	f.add(exteth.Stats{TxEager: 10, RxEager: 20, TxRendezvous: 30, RxRendezvous: 40, TxGroup: 50, RxGroup: 60})
	want := Frames{Way{10, 20}, Way{30, 40}, Way{50, 60}}
	if got := f.Minus(early); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := want.String(); got != "10 frames eagerly, 30 by rendezvous, 50 by broadcast" {
		t.Error(got)
	}
}
