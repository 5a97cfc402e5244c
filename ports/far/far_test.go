package far

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
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
		e, err := NewDirect(card, VPID, func(from fabric.NodeID, b []byte) { c <- said{from, bytes.Clone(b)} })
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

// Messages of all lengths arrive in order, whole, from several nodes at once.
func TestMessages(t *testing.T) {
	all, heard := engines(t, 3)
	sizes := []int{1, 119, 120, 121, 240, 4000, MaxMessage}
	send := func(e *Engine, mark byte) {
		for i := range 200 {
			b := bytes.Repeat([]byte{mark}, sizes[i%len(sizes)])
			if err := e.Send(0, b); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	}
	if !all[1].Reaches(0) || all[1].Reaches(9) {
		t.Error("node 1 does not reach node 0, or reaches node 9")
	}
	go send(all[1], 1)
	go send(all[2], 2)
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
	if err := all[0].Send(1, make([]byte, MaxMessage+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	if err := all[0].Send(9, []byte("x")); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("no such node: %v", err)
	}
	all[0].close()
	if err := all[0].Send(1, []byte("x")); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Pieces that make up no message are not heard.
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
	piece(tagLast, "the end of nothing")
	piece(tagFirst, "a link that ends")
	piece(tagFirst, "long")
	for range MaxMessage/velo.MaxPayload + 1 {
		piece(0, string(make([]byte, velo.MaxPayload)))
	}
	piece(tagLast, "x")
	piece(tagFirst, "a ")
	piece(tagLast, "message")
	if got := <-heard[1]; string(got.b) != "a message" || got.from != 0 {
		t.Errorf("heard %d bytes of node %d", len(got.b), got.from)
	}
	select {
	case m := <-heard[1]:
		t.Errorf("heard %d bytes more", len(m.b))
	default:
	}
}

// A node that takes nothing holds up its own messages, and those for a while only; what is for
// others goes on, whatever they return meanwhile.
func TestStalled(t *testing.T) {
	cards := fabrictest.New(t, 3)
	box, err := cards[1].OpenVELO(VPID, velo.Config{Slots: slots, Credits: credits}) // nobody reads it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	var two [2]*Engine
	for i, card := range []int{0, 2} {
		if two[i], err = NewDirect(cards[card], VPID, func(fabric.NodeID, []byte) {}); err != nil {
			t.Fatal(err)
		}
		two[i].stall = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- two[i].Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := errors.Join(<-done, two[i].Close()); err != nil {
				t.Error(err)
			}
		})
	}
	stop, others := make(chan struct{}), make(chan int)
	go func() { // credits of node 2 return all the time
		n := 0
		for ; ; n++ {
			if err := two[0].Send(2, []byte("x")); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				others <- n
				return
			default:
			}
		}
	}()
	for err = nil; err == nil; {
		err = two[0].Send(1, make([]byte, MaxMessage))
	}
	if !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	if err := two[0].Send(1, []byte("x")); !errors.Is(err, ErrStalled) {
		t.Errorf("the next one: %v", err)
	}
	close(stop)
	if n := <-others; n == 0 {
		t.Error("another node got nothing")
	}
	for box.Advance(); ; box.Advance() {
		if _, _, ok := box.Peek(); !ok {
			break
		}
	}
	for err = ErrStalled; errors.Is(err, ErrStalled); {
		err = two[0].Send(1, []byte("x"))
	}
	if err != nil {
		t.Errorf("when it reads again: %v", err)
	}
}

// TrySend to a node that takes nothing fails for good after a while. What it has cut short holds up
// nothing when the node takes again.
func TestTrySendStalled(t *testing.T) {
	cards := fabrictest.New(t, 2)
	box, err := cards[1].OpenVELO(VPID, velo.Config{Slots: slots, Credits: credits}) // nobody reads it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	e, err := New(cards[0], VPID, func(fabric.NodeID, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	e.stall = 100 * time.Millisecond
	two := make([]byte, velo.MaxPayload+1)
	for err = nil; err == nil; {
		err = e.TrySend(1, two)
	}
	if !errors.Is(err, fabric.ErrAgain) {
		t.Fatal(err)
	}
	for errors.Is(err, fabric.ErrAgain) {
		err = e.TrySend(1, two)
	}
	if !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	for box.Advance(); ; box.Advance() {
		if _, _, ok := box.Peek(); !ok {
			break
		}
	}
	for err = ErrStalled; errors.Is(err, ErrStalled) || errors.Is(err, fabric.ErrAgain); {
		err = e.TrySend(1, two)
	}
	if err != nil {
		t.Errorf("when it reads again: %v", err)
	}
}
