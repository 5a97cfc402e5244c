package client

import (
	"testing"
	"time"

	"exnet/directsockets/broker/wire"
)

// asked is a Way that keeps what it was asked.
type asked chan wire.Message

func (w asked) Ask(m wire.Message, _ Socket, _ bool, _ ...int) error {
	w <- m
	return nil
}

func (asked) Abort() {}

// A listener that was one too many is announced again later, and one that the broker has not found
// is not.
func TestListenAgain(t *testing.T) {
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAttached(Config{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	defer a.Client().Close()
	defer a.Ended()
	w := make(asked, 16)
	a.Connected(w, page, 1)
	told := 0
	refuse := func(m wire.Message, why wire.Reason) {
		t.Helper()
		if m.Type != wire.Listen {
			t.Fatalf("it says %v", m.Type)
		}
		if err := a.Handle(wire.Message{Type: wire.Refused, ID: m.ID, Reason: why}, nil); err != nil {
			t.Fatal(err)
		}
		told++
	}
	known := 0
	b := a.Client().Listen(Socket{}, func(wire.Reason) { known++ })
	for range 2 {
		refuse(<-w, wire.TooMany) // which waits for the next one
	}
	refuse(<-w, wire.NotOwner)
	select {
	case m := <-w:
		t.Errorf("after that, it says %v", m.Type)
	case <-time.After(5 * time.Second): // longer than the next time would take
	}
	if known != told {
		t.Errorf("the listener was told %d times of %d", known, told)
	}
	b.Close()
}
