package datagram

import (
	"testing"

	"exnet/internal/shm"
)

// TestUnderWay has the receiver count a datagram of a send by the kernel that has not ended: it
// is taken for none of those before, and a record comes after all of them.
func TestUnderWay(t *testing.T) {
	f := newFlow(t, minRing, 0)
	f.open(t)
	if !f.tx.Settled(shm.Nanotime()) {
		t.Fatal("it is not settled at first")
	}
	f.tx.sends.Begin() // one goroutine's, which is still in its call,
	f.tx.sends.Begin() // and another one's, which is in the kernel's queue
	f.tx.sends.End()
	f.rx.Took() // the first one's
	if f.tx.Settled(shm.Nanotime()) {
		t.Error("the one under way is taken for the other")
	}
	if f.tx.Send(nil, Meta{}) != Published {
		t.Fatal("not published")
	}
	if _, there, err := f.rx.Next(); !there || err != nil || f.rx.Due() {
		t.Fatal("a record is due before what was sent before it", there, err)
	}
	f.rx.Took()
	if !f.rx.Due() || !f.tx.Settled(shm.Nanotime()) {
		t.Error("all has come, and something is still on its way")
	}
	f.tx.sends.End()
	if !f.tx.Settled(shm.Nanotime()) || f.rx.Kernel() != 3 {
		t.Errorf("all has come and ended; the receiver is told of %d", f.rx.Kernel())
	}
}

// TestUnderWayDry has a receiver find its queue empty while a send is under way: its datagram is
// not lost.
func TestUnderWayDry(t *testing.T) {
	f := newFlow(t, minRing, 0)
	f.rx.Disarm()
	f.tx.sends.Begin()
	f.rx.Dry(f.rx.Kernel())
	if f.tx.Settled(shm.Nanotime()) {
		t.Error("nothing is on its way, though a send is under way")
	}
	f.tx.sends.Cancel()
	if !f.tx.Settled(shm.Nanotime()) {
		t.Error("it has failed, and is still on its way")
	}
}

// TestFailed has a send by the kernel fail. If a record says that it comes after it, both sides
// count it as lost: no later datagram is taken for it.
func TestFailed(t *testing.T) {
	for _, counted := range []bool{false, true} {
		f := newFlow(t, minRing, 0)
		f.open(t)
		if !f.tx.Settled(shm.Nanotime()) {
			t.Fatal("it is not settled at first")
		}
		f.tx.sends.Begin()
		if counted {
			if f.tx.Send(nil, Meta{}) != Published {
				t.Fatal("not published")
			}
			if _, there, err := f.rx.Next(); !there || err != nil || f.rx.GiveUp() != 1 {
				t.Fatal("it comes after nothing", there, err)
			}
			if _, _, ok := f.receive(t); !ok {
				t.Fatal("nothing comes")
			}
		}
		f.tx.Failed()
		if !f.tx.Settled(shm.Nanotime()) {
			t.Errorf("counted %v: it is still on its way", counted)
		}
		f.tx.sends.Begin()
		f.tx.sends.End()
		if f.tx.Send(nil, Meta{}) != Published {
			t.Fatal("not published")
		}
		if _, there, err := f.rx.Next(); !there || err != nil || f.rx.Missing() != 1 {
			t.Errorf("counted %v: a record waits for %d datagrams by the kernel, not for 1", counted, f.rx.Missing())
		}
	}
}
