package exteth

import (
	"bytes"
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/velo"
)

// sendGroup sends a frame to the group, polling nodes whenever it has to wait.
func sendGroup(t *testing.T, from *testNode, b *TxBuffer, skip bool, poll ...*testNode) error {
	t.Helper()
	for range 1000 {
		err := from.SendGroup(fabric.GroupBroadcast, b, skip)
		if !errors.Is(err, ErrAgain) {
			return err
		}
		skip = false
		moved := false
		for _, n := range poll {
			moved = n.poll() || moved
		}
		if !moved {
			return err
		}
	}
	t.Fatal("no end")
	return nil
}

// A frame of more messages than there are credits: the members that take it get
// it whole; the one that takes nothing is left out, and gets whole frames again
// once it takes them.
func TestGroupWithStalledMember(t *testing.T) {
	net := newNet(t, 4, Config{VELO: velo.Config{Slots: 64, Credits: 16}})
	a, b, c, deaf := net.nodes[0], net.nodes[1], net.nodes[2], net.nodes[3]
	frame := func() (*TxBuffer, []byte) {
		buf := a.buf(t, 9014)
		return buf, bytes.Clone(buf.Frame())
	}
	buf, want := frame()
	if err := sendGroup(t, a, buf, false, b, c); !errors.Is(err, ErrAgain) {
		t.Fatalf("with a member that takes nothing: %v, want ErrAgain", err)
	}
	if got := buf.Sent(); got != 16*120 {
		t.Errorf("%d bytes were sent, want %d", got, 16*120)
	}
	// Another group frame may not come between; unicast may.
	between := a.buf(t, 100)
	if err := a.SendGroup(63, between, true); !errors.Is(err, ErrAgain) {
		t.Errorf("another group frame: %v, want ErrAgain", err)
	}
	if err := a.Send(b.id, between); err != nil {
		t.Errorf("a unicast frame: %v", err)
	}
	for b.poll() {
	}
	if got := len(b.frames.Take()); got != 1 {
		t.Errorf("%d unicast frames, want 1", got)
	}

	// Without the stalled member it goes on, at the pace of the others.
	if err := sendGroup(t, a, buf, true, b, c); err != nil {
		t.Fatal(err)
	}
	for b.poll() || c.poll() {
	}
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, c.frames.Take(), a.id, want)
	if s := a.Stats(); s.TxDeaf != 1 || s.TxGroup != 1 || s.TxMissed != 1 {
		t.Errorf("%d members left out, %d frames sent, missed by %d; want 1 each", s.TxDeaf, s.TxGroup, s.TxMissed)
	}
	// Further frames do not wait for it at all.
	buf, want = frame()
	if err := sendGroup(t, a, buf, false, b, c); err != nil {
		t.Fatalf("the next frame: %v", err)
	}
	for b.poll() || c.poll() {
	}
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, c.frames.Take(), a.id, want)
	if s := a.Stats(); s.TxDeaf != 1 || s.TxGroup != 2 || s.TxMissed != 2 {
		t.Errorf("%d members left out, %d frames sent, missed by %d; want 1, 2 and 2", s.TxDeaf, s.TxGroup, s.TxMissed)
	}
	skipped := a.Port.nic.Stats().VELO.MulticastSkipped
	if messages := uint64(76 + 76 - 16); skipped != messages {
		t.Errorf("the fabric left out %d messages, want %d", skipped, messages)
	}

	// It wakes up: what it has is the beginning of a frame, which the next one
	// shows to be incomplete.
	for deaf.poll() {
	}
	if got := deaf.frames.Take(); len(got) != 0 {
		t.Errorf("it got %d frames", len(got))
	}
	buf, want = frame()
	if err := sendGroup(t, a, buf, false, b, c, deaf); err != nil {
		t.Fatal(err)
	}
	net.settle()
	for _, n := range []*testNode{b, c, deaf} {
		checkFrames(t, n.frames.Take(), a.id, want)
	}
	if s := a.Stats(); s.TxGroup != 3 || s.TxMissed != 2 {
		t.Errorf("%d frames sent, missed by %d; want 3 and 2", s.TxGroup, s.TxMissed)
	}
	if s := deaf.Stats(); s.RxIncomplete != 1 || s.RxOrphan != 0 {
		t.Errorf("%d incomplete, %d orphans; want 1 and 0", s.RxIncomplete, s.RxOrphan)
	}
	net.checkIdle()
}

// A member that wakes up in the middle of a frame gets no mixed-up one.
func TestGroupMemberWakesInFrame(t *testing.T) {
	net := newNet(t, 3, Config{VELO: velo.Config{Slots: 64, Credits: 16}})
	a, b, deaf := net.nodes[0], net.nodes[1], net.nodes[2]
	buf := a.buf(t, 30000)
	want := bytes.Clone(buf.Frame())
	if err := sendGroup(t, a, buf, false, b); !errors.Is(err, ErrAgain) {
		t.Fatalf("with a member that takes nothing: %v, want ErrAgain", err)
	}
	err := a.SendGroup(63, buf, true)
	for ; errors.Is(err, ErrAgain); err = a.SendGroup(63, buf, false) {
		b.poll()
		if buf.Sent() > 15000 {
			deaf.poll()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, deaf.frames.Take(), a.id)
	if s := deaf.Stats(); s.RxOrphan != 0 || s.RxIncomplete != 0 {
		t.Errorf("%d orphans, %d incomplete: it got something of the rest", s.RxOrphan, s.RxIncomplete)
	}
	buf = a.buf(t, 200)
	want = bytes.Clone(buf.Frame())
	if err := sendGroup(t, a, buf, false); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, deaf.frames.Take(), a.id, want)
	if s := deaf.Stats(); s.RxIncomplete != 1 {
		t.Errorf("%d incomplete, want 1", s.RxIncomplete)
	}
	net.checkIdle()
}

// A member that has the beginning of a frame and comes back in the middle of
// the next one, just where it had left, does not take the two for one.
func TestGroupMemberComesBackInFrame(t *testing.T) {
	net := newNet(t, 3, Config{VELO: velo.Config{Slots: 64, Credits: 4}})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	routes := a.Port.nic.Routes()
	begin := func() (*TxBuffer, []byte) {
		buf := a.buf(t, 8*120-1)
		want := bytes.Clone(buf.Frame())
		if err := a.SendGroup(63, buf, false); !errors.Is(err, ErrAgain) || buf.Sent() != 4*120 {
			t.Fatalf("%d bytes sent, %v", buf.Sent(), err)
		}
		b.poll()
		c.poll()
		return buf, want
	}
	first, _ := begin()
	a.Free(first)
	if err := routes.Leave(63, c.id); err != nil {
		t.Fatal(err)
	}
	second, want := begin()
	if err := routes.Join(63, c.id); err != nil {
		t.Fatal(err)
	}
	if err := sendGroup(t, a, second, false, b, c); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, c.frames.Take(), a.id)
	third := a.buf(t, 200)
	want = bytes.Clone(third.Frame())
	if err := sendGroup(t, a, third, false, b, c); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	checkFrames(t, c.frames.Take(), a.id, want)
	net.checkIdle()
}

// Nor does one that is given up before its first message found credit.
func TestGroupFrameGivenUpUnsent(t *testing.T) {
	net := newNet(t, 2, Config{VELO: velo.Config{Slots: 64, Credits: 8}})
	a, b := net.nodes[0], net.nodes[1]
	for range 8 {
		if err := a.Send(b.id, a.buf(t, 100)); err != nil {
			t.Fatal(err)
		}
	}
	first, next := a.buf(t, 100), a.buf(t, 100) // not the same memory
	if err := a.SendGroup(63, first, false); !errors.Is(err, ErrAgain) || first.Sent() != 0 {
		t.Fatalf("%d bytes sent, %v", first.Sent(), err)
	}
	a.Free(first)
	net.settle()
	b.frames.Take()
	want := bytes.Clone(next.Frame())
	if err := a.SendGroup(63, next, false); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	net.checkIdle()
}

// A group frame that is given up in the middle does not block the next one.
func TestGroupFrameGivenUp(t *testing.T) {
	net := newNet(t, 2, Config{VELO: velo.Config{Slots: 64, Credits: 8}})
	a, b := net.nodes[0], net.nodes[1]
	buf := a.buf(t, 2000)
	if err := a.SendGroup(63, buf, false); !errors.Is(err, ErrAgain) {
		t.Fatal(err)
	}
	a.Free(buf)
	net.settle()
	buf = a.buf(t, 200)
	want := bytes.Clone(buf.Frame())
	if err := a.SendGroup(63, buf, false); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	if s := b.Stats(); s.RxIncomplete != 1 {
		t.Errorf("%d incomplete, want 1", s.RxIncomplete)
	}
	net.checkIdle()
}

// A group without members takes frames, as a network without listeners does.
func TestEmptyGroup(t *testing.T) {
	net := newNet(t, 1, Config{})
	a := net.nodes[0]
	for _, g := range []fabric.GroupID{0, 63} {
		if err := a.SendGroup(g, a.buf(t, 100), false); err != nil {
			t.Errorf("group %d: %v", g, err)
		}
	}
	if err := a.SendGroup(64, a.buf(t, 100), false); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("group 64: %v", err)
	}
	net.checkIdle()
}

// A member that takes nothing is waited for once, also when frames to its group
// alternate with frames to another.
func TestGroupsWithStalledMember(t *testing.T) {
	net := newNet(t, 3, Config{VELO: velo.Config{Slots: 64, Credits: 16}})
	a, b, deaf := net.nodes[0], net.nodes[1], net.nodes[2]
	const small, both = fabric.GroupID(1), fabric.GroupID(2)
	routes := a.Port.nic.Routes()
	for _, j := range []struct {
		g fabric.GroupID
		n fabric.NodeID
	}{{small, b.id}, {both, b.id}, {both, deaf.id}} {
		if err := routes.Join(j.g, j.n); err != nil {
			t.Fatal(err)
		}
	}
	send := func(g fabric.GroupID, skip bool) error {
		err := a.SendGroup(g, a.buf(t, 100), skip)
		for b.poll() {
		}
		return err
	}
	for range 16 {
		if err := send(both, false); err != nil {
			t.Fatal(err)
		}
	}
	buf := a.buf(t, 100)
	if err := a.SendGroup(both, buf, false); !errors.Is(err, ErrAgain) {
		t.Fatalf("without credit: %v, want ErrAgain", err)
	}
	if err := a.SendGroup(both, buf, true); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := send(small, false); err != nil {
			t.Fatalf("frame %d to the group without it: %v", i, err)
		}
		if err := send(both, false); err != nil {
			t.Fatalf("frame %d to its group: %v", i, err)
		}
	}
	if s := a.Stats(); s.TxDeaf != 1 {
		t.Errorf("%d times left out, want 1", s.TxDeaf)
	}
	if got := len(b.frames.Take()); got != 16+1+40 {
		t.Errorf("the other member got %d frames, want %d", got, 16+1+40)
	}
	for deaf.poll() {
	}
	if err := send(both, false); err != nil {
		t.Fatal(err)
	}
	net.settle()
	if got := len(deaf.frames.Take()); got != 16+1 {
		t.Errorf("it got %d frames, want %d", got, 16+1)
	}
	net.checkIdle()
}
