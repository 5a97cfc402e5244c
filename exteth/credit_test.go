package exteth

import (
	"bytes"
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/velo"
)

// A receiver that does not poll slows its sender, by either protocol, and loses
// nothing.
func TestCredits(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		fit  int // frames that go out at once
	}{
		{"messages=1", 100, 16},
		{"messages=4", 480, 4},
		{"rendezvous", 1000, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			net := newNet(t, 3, Config{VELO: velo.Config{Slots: 64, Credits: 16}})
			a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
			var want [][]byte
			var held *TxBuffer
			for {
				buf := a.buf(t, tt.size)
				frame := bytes.Clone(buf.Frame())
				err := a.Send(b.id, buf)
				if errors.Is(err, ErrAgain) {
					held = buf
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, frame)
			}
			if len(want) != tt.fit {
				t.Errorf("%d frames went out, want %d", len(want), tt.fit)
			}
			// Another peer is served.
			if err := a.Send(c.id, a.buf(t, tt.size)); err != nil {
				t.Errorf("to another peer: %v", err)
			}
			if a.credit != 0 {
				t.Error("OnCredit was called too early")
			}
			net.settle()
			if a.credit != 1 {
				t.Errorf("OnCredit was called %d times", a.credit)
			}
			want = append(want, bytes.Clone(held.Frame()))
			if err := a.Send(b.id, held); err != nil {
				t.Fatal(err)
			}
			net.settle()
			checkFrames(t, b.frames.Take(), a.id, want...)
			if s := b.Stats(); s.RxIncomplete+s.RxOrphan != 0 {
				t.Errorf("%d incomplete, %d orphans", s.RxIncomplete, s.RxOrphan)
			}
			net.checkIdle()
		})
	}
}

// A frame of more messages than the peer ever gives credits for goes by
// rendezvous: nobody would ever say that there is credit enough.
func TestMoreMessagesThanCredits(t *testing.T) {
	net := newNet(t, 2, Config{EagerThreshold: 4000, VELO: velo.Config{Slots: 64, Credits: 8}})
	a, b := net.nodes[0], net.nodes[1]
	for _, size := range []int{8 * 120, 8*120 + 1, 4000} {
		buf := a.buf(t, size)
		want := bytes.Clone(buf.Frame())
		if err := a.Send(b.id, buf); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		net.settle()
		checkFrames(t, b.frames.Take(), a.id, want)
	}
	if s := a.Stats(); s.TxEager != 1 || s.TxRendezvous != 2 {
		t.Errorf("%d eager, %d by rendezvous; want 1 and 2", s.TxEager, s.TxRendezvous)
	}
	net.checkIdle()
}

// With more senders than the mailbox has slots for, an eager frame can break
// off in the middle. It is sent again and arrives once, whole.
func TestMailboxFull(t *testing.T) {
	net := newNet(t, 4, Config{VELO: velo.Config{Slots: 16, Credits: 10}})
	rx := net.nodes[0]
	const perSender = 40
	want := make(map[fabric.NodeID][][]byte)
	held := make(map[fabric.NodeID]*TxBuffer)
	for done := false; !done; {
		done = true
		for _, n := range net.nodes[1:] {
			for len(want[n.id]) < perSender || held[n.id] != nil {
				done = false
				buf := held[n.id]
				if buf == nil {
					buf = n.buf(t, 480)
					want[n.id] = append(want[n.id], bytes.Clone(buf.Frame()))
				}
				held[n.id] = nil
				if err := n.Send(rx.id, buf); errors.Is(err, ErrAgain) {
					held[n.id] = buf
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		rx.PollVELO(5)
	}
	net.settle()
	got := make(map[fabric.NodeID][]gotFrame)
	for _, g := range rx.frames.Take() {
		got[g.Src] = append(got[g.Src], g)
	}
	var cut uint64
	for _, n := range net.nodes[1:] {
		checkFrames(t, got[n.id], n.id, want[n.id]...)
		cut += n.Stats().TxEagerCut
	}
	if cut == 0 {
		t.Error("no frame broke off: the test tests nothing")
	}
	if s := rx.Stats(); s.RxIncomplete != cut || s.RxOrphan != 0 {
		t.Errorf("%d incomplete frames, %d orphans; %d broke off", s.RxIncomplete, s.RxOrphan, cut)
	}
	net.checkIdle()
}

// OnBuffer is called once for every time that Alloc found none.
func TestOnBuffer(t *testing.T) {
	net := newNet(t, 1, Config{Buffers: 2})
	a := net.nodes[0]
	x, y := a.Alloc(), a.Alloc()
	if x == nil || y == nil || a.Alloc() != nil || a.Alloc() != nil {
		t.Fatal("there are two buffers")
	}
	a.Free(x)
	a.Free(y)
	if a.buffer != 1 {
		t.Errorf("OnBuffer was called %d times, want 1", a.buffer)
	}
	if s := a.Stats(); s.TxNoBuffer != 2 {
		t.Errorf("%d times no buffer, want 2", s.TxNoBuffer)
	}
}

// OnCredit may be called by the fabric in the middle of a send, and may send.
func TestOnCreditSends(t *testing.T) {
	net := newNet(t, 2, Config{VELO: velo.Config{Slots: 64, Credits: 8}})
	a, b := net.nodes[0], net.nodes[1]
	called := 0
	a.cfg.OnCredit = func(n fabric.NodeID) {
		called++
		if err := a.Send(n, a.buf(t, 100)); err != nil {
			t.Error(err)
		}
	}
	a.tx.Lock()
	a.onCredit(b.id) // as velo.Send does when it gives back a credit
	a.onCredit(b.id)
	if called != 0 {
		t.Fatal("OnCredit was called under the lock")
	}
	a.unlockTx()
	if called != 2 {
		t.Errorf("OnCredit was called %d times, want 2", called)
	}
	a.onCredit(b.id)
	if called != 3 {
		t.Errorf("OnCredit was called %d times, want 3", called)
	}
	net.settle()
	if got := len(b.frames.Take()); got != 3 {
		t.Errorf("%d frames, want 3", got)
	}
}

// A node that leaves while frames are lent to it does not take the buffers along:
// its senders get errors, and the first of these brings them back. The others go
// on.
func TestLossOfNode(t *testing.T) {
	for _, how := range []string{"close", "detach"} {
		t.Run(how, func(t *testing.T) {
			net := newNet(t, 3, Config{VELO: velo.Config{Slots: 64, Credits: 8}})
			a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
			for range 8 {
				if err := a.Send(b.id, a.buf(t, 2000)); err != nil {
					t.Fatal(err)
				}
			}
			held := a.buf(t, 2000)
			if err := a.Send(b.id, held); !errors.Is(err, ErrAgain) {
				t.Fatal(err)
			}
			want := fabric.ErrPeerDown
			if how == "close" {
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				want = fabric.ErrNoRoute
				if err := net.fabric.Detach(b.nic); err != nil {
					t.Fatal(err)
				}
			}
			if a.credit != 1 { // whoever waits for the peer learns of it
				t.Errorf("OnCredit was called %d times", a.credit)
			}
			for _, buf := range []*TxBuffer{held, a.buf(t, 100), a.buf(t, 2000)} {
				if err := a.Send(b.id, buf); !errors.Is(err, want) || !Unreached(err) {
					t.Errorf("%d bytes: %v, want %v", len(buf.Frame()), err, want)
				}
				a.Free(buf)
			}
			for _, size := range []int{100, 2000} {
				buf := a.buf(t, size)
				frame := bytes.Clone(buf.Frame())
				if err := a.Send(c.id, buf); err != nil {
					t.Errorf("%d bytes to another peer: %v", size, err)
				}
				for a.poll() || c.poll() {
				}
				checkFrames(t, c.frames.Take(), a.id, frame)
			}
			if err := a.SendGroup(63, a.buf(t, 300), false); err != nil {
				t.Errorf("to the group: %v", err)
			}
			for a.poll() || c.poll() {
			}
			if got := len(c.frames.Take()); got != 1 {
				t.Errorf("%d group frames, want 1", got)
			}
			if free := a.free(); free != a.cfg.Buffers {
				t.Errorf("%d of %d buffers came back", free, a.cfg.Buffers)
			}
			if s := a.Stats(); s.TxNotRead != 8 || s.TxNoRoute != 3 {
				t.Errorf("%d were not read, %d had no route; want 8 and 3", s.TxNotRead, s.TxNoRoute)
			}
		})
	}
}

// A node that leaves in the middle of its own frames leaves nothing behind at
// the receiver, and can come back.
func TestLossOfSender(t *testing.T) {
	net := newNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	raw := net.addRaw()
	msgs := eagerMessages(make([]byte, 400), false)
	raw.send(b.id, msgs[0])
	if err := a.Send(b.id, a.buf(t, 3000)); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(b.id, a.buf(t, 100)); err != nil {
		t.Fatal(err)
	}
	if err := net.fabric.Detach(a.nic); err != nil {
		t.Fatal(err)
	}
	for b.poll() {
	}
	if s := b.Stats(); s.RxGetFailed != 1 {
		t.Errorf("%d GETs failed, want 1", s.RxGetFailed)
	}
	if err := net.fabric.Attach(a.nic); err != nil {
		t.Fatal(err)
	}
	b.frames.Take()
	buf := a.buf(t, 3000)
	want := bytes.Clone(buf.Frame())
	if err := a.Send(b.id, buf); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	net.checkIdle()
}
