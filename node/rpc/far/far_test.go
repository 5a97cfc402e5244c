package far

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// said is a message that was heard.
type said struct {
	from fabric.NodeID
	b    []byte
}

// engines starts an Engine at each of n nodes, and returns what they hear.
func engines(t *testing.T, n int) ([]*Engine, []chan said) {
	t.Helper()
	var all []*Engine
	var heard []chan said
	for _, card := range fabrictest.New(t, n) {
		c := make(chan said, 1<<12)
		e, err := New(card, Config{VPID: VPID, Direct: true, Hear: func(from fabric.NodeID, _ uint64, b []byte) { c <- said{from, bytes.Clone(b)} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := errors.Join(<-done, e.Close()); err != nil {
				t.Error(err)
			}
		})
		all, heard = append(all, e), append(heard, c)
	}
	return all, heard
}

// send sends a message by the session that there is, or by a new one.
func send(e *Engine, to fabric.NodeID, b []byte) error { return inSession(e, e.Send, to, b) }

// trySend is send that does not wait.
func trySend(e *Engine, to fabric.NodeID, b []byte) error { return inSession(e, e.TrySend, to, b) }

func inSession(e *Engine, by func(fabric.NodeID, uint64, []byte) error, to fabric.NodeID, b []byte) error {
	session, err := e.Session(to)
	if err != nil {
		return err
	}
	return by(to, session, b)
}

// Messages of all lengths arrive in order, whole, from several nodes at once.
func TestMessages(t *testing.T) {
	all, heard := engines(t, 3)
	sizes := []int{1, 119, 120, 121, 240, 4000, MaxMessage}
	from := func(e *Engine, mark byte) {
		for i := range 200 {
			b := bytes.Repeat([]byte{mark}, sizes[i%len(sizes)])
			if err := send(e, 0, b); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	}
	if !all[1].Reaches(0) || all[1].Reaches(9) {
		t.Error("node 1 does not reach node 0, or reaches node 9")
	}
	go from(all[1], 1)
	go from(all[2], 2)
	count := make(map[fabric.NodeID]int)
	for range 400 {
		m := <-heard[0]
		want := bytes.Repeat([]byte{byte(m.from)}, sizes[count[m.from]%len(sizes)])
		if !bytes.Equal(m.b, want) {
			t.Fatalf("message %d of node %d has %d bytes, want %d", count[m.from], m.from, len(m.b), len(want))
		}
		count[m.from]++
	}
}

func TestSendRefuses(t *testing.T) {
	all, _ := engines(t, 2)
	if err := send(all[0], 1, make([]byte, MaxMessage+1)); !errors.Is(err, ErrSize) {
		t.Errorf("too long: %v", err)
	}
	if err := send(all[0], 9, []byte("x")); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("no such node: %v", err)
	}
	all[0].close()
	if err := send(all[0], 1, []byte("x")); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Pieces that make up no message of the session are not heard, and controls that say nonsense end
// nothing but the session.
func TestHostile(t *testing.T) {
	all, heard := engines(t, 2)
	piece := func(tag uint8, text string) {
		for {
			err := all[0].box.Send(velo.Descriptor{Dst: 1, VPID: VPID, Tag: tag}, []byte(text))
			if err == nil {
				return
			}
			if !errors.Is(err, fabric.ErrAgain) {
				t.Fatal(err)
			}
		}
	}
	if err := send(all[0], 1, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if got := <-heard[1]; string(got.b) != "one" {
		t.Errorf("heard %q", got.b)
	}
	one, two := all[0], all[1]
	one.mu.Lock()
	mine := one.sessions[1].mine
	one.mu.Unlock()
	head := func(number uint32, mine uint64) string {
		b := binary.LittleEndian.AppendUint32(nil, number)
		b = binary.LittleEndian.AppendUint32(b, uint32(mine))
		return string(binary.LittleEndian.AppendUint16(b, uint16(len("a message")-1)))
	}
	piece(tagLast, "the end of nothing")
	piece(tagFirst, head(2, mine)+"a link that ends")
	piece(tagFirst, head(2, mine)+"long")
	for range MaxMessage/velo.MaxPayload + 1 {
		piece(0, string(make([]byte, velo.MaxPayload)))
	}
	piece(tagLast, "x")
	piece(tagFirst|tagLast, "short")
	piece(tagFirst|tagLast, head(1, mine)+"a message")
	piece(tagFirst|tagLast, head(9, mine)+"too early")
	piece(tagFirst|tagLast, head(2, mine+1)+"strangers")
	piece(tagFirst|tagLast|tagControl, "nonsense")
	piece(tagFirst|tagLast|tagControl, string(control{kindAck, 0, 99, mine + 1, 0}.bytes()))
	piece(tagFirst|tagLast, head(2, mine)+"a piece is missing")
	piece(tagFirst, head(2, mine)+"a ")
	piece(tagFirst|tagLast|tagControl, string(control{9, 9, 9, mine, 0}.bytes()))
	piece(tagLast, "message")
	if got := <-heard[1]; string(got.b) != "a message" || got.from != 0 {
		t.Errorf("heard %d bytes of node %d", len(got.b), got.from)
	}
	one.mu.Lock()
	theirs := one.sessions[1].theirs
	one.mu.Unlock()
	piece(tagFirst|tagLast|tagControl, string(control{kindAck, 0, 99, mine, theirs}.bytes())) // of what was not sent
	for over := false; !over; time.Sleep(time.Millisecond) {
		two.mu.Lock()
		over = two.sessions[0] == nil
		two.mu.Unlock()
	}
	select {
	case m := <-heard[1]:
		t.Errorf("heard %d bytes more", len(m.b))
	default:
	}
}

// stopped starts an Engine whose owner takes nothing until go is called.
func stopped(t *testing.T, card *nic.NIC) (goOn func()) {
	t.Helper()
	wait := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(wait) })
	run(t, card, Config{VPID: VPID, Hear: func(fabric.NodeID, uint64, []byte) { <-wait }})
	t.Cleanup(goOn)
	return goOn
}

// run starts an Engine.
func run(t *testing.T, card *nic.NIC, c Config) *Engine {
	t.Helper()
	e, err := New(card, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, e.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// up waits until an Engine has a session with a node.
func up(e *Engine, n fabric.NodeID) {
	for up := false; !up; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		up = e.sessions[n] != nil && e.sessions[n].state == stateUp
		e.mu.Unlock()
	}
}

// setStall changes how long an Engine waits for credits.
func setStall(e *Engine, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stall = d
}

// A node that takes nothing holds up its own messages, and none for others.
func TestOthersGoOn(t *testing.T) {
	cards := fabrictest.New(t, 3)
	goOn := stopped(t, cards[1])
	e := run(t, cards[0], Config{VPID: VPID, Direct: true, Hear: func(fabric.NodeID, uint64, []byte) {}})
	heard := make(chan struct{}, 1)
	run(t, cards[2], Config{VPID: VPID, Direct: true, Hear: func(fabric.NodeID, uint64, []byte) { heard <- struct{}{} }})
	setStall(e, time.Hour)
	held := make(chan error)
	go func() {
		var err error
		for range 2*waitingBytes/MaxMessage + 2 { // more than may wait, here and in the mailbox
			err = errors.Join(err, send(e, 1, make([]byte, MaxMessage)))
		}
		held <- err
	}()
	for e.box.Credits(1, VPID) >= credits/2 { // those that remain are not enough to go on
		time.Sleep(time.Millisecond)
	}
	for range 2 * credits { // credits of node 2 must return
		if err := send(e, 2, []byte("x")); err != nil {
			t.Fatal(err)
		}
		<-heard
	}
	select {
	case err := <-held:
		t.Errorf("a node that takes nothing has taken all: %v", err)
	default:
	}
	goOn()
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// Messages to a node that takes nothing fail after a while, and go again when it takes them.
func TestStalled(t *testing.T) {
	cards := fabrictest.New(t, 2)
	goOn := stopped(t, cards[1])
	e := run(t, cards[0], Config{VPID: VPID, Direct: true, Hear: func(fabric.NodeID, uint64, []byte) {}})
	err := send(e, 1, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	up(e, 1)
	setStall(e, 50*time.Millisecond)
	for err == nil {
		err = send(e, 1, make([]byte, MaxMessage))
	}
	if !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	goOn()
	setStall(e, time.Hour)
	for err = ErrStalled; errors.Is(err, ErrStalled); {
		err = send(e, 1, []byte("x"))
	}
	if err != nil {
		t.Errorf("when it reads again: %v", err)
	}
}

// TrySend to a node that takes nothing fails for good after a while. What it has cut short holds up
// nothing when the node takes again.
func TestTrySendStalled(t *testing.T) {
	cards := fabrictest.New(t, 2)
	goOn := stopped(t, cards[1])
	e := run(t, cards[0], Config{VPID: VPID, Hear: func(fabric.NodeID, uint64, []byte) {}})
	two := make([]byte, velo.MaxPayload+1)
	if err := send(e, 1, two); err != nil { // the nodes know each other
		t.Fatal(err)
	}
	up(e, 1)
	setStall(e, 100*time.Millisecond)
	var err error
	for err == nil {
		err = trySend(e, 1, two)
	}
	if !errors.Is(err, fabric.ErrAgain) {
		t.Fatal(err)
	}
	for errors.Is(err, fabric.ErrAgain) {
		err = trySend(e, 1, two)
	}
	if !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	goOn()
	setStall(e, time.Hour)
	for err = ErrStalled; errors.Is(err, ErrStalled) || errors.Is(err, fabric.ErrAgain); {
		err = trySend(e, 1, two)
	}
	if err != nil {
		t.Errorf("when it reads again: %v", err)
	}
}
