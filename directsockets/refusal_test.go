package directsockets_test

import (
	"net"
	"testing"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// silentBroker takes offers, whose doorbells end at once, and says nothing of them.
type silentBroker struct{ offers chan wire.Message }

func (b silentBroker) Ask(m wire.Message, _ client.Socket, _ bool, _ ...int) error {
	if m.Type == wire.Offer {
		b.offers <- m
	}
	return nil
}

func (silentBroker) Abort() {}

// attachTo attaches a client to a broker, until the test ends, and returns its page as well.
func attachTo(t *testing.T, broker client.Way) (client.Attached, *wire.Page) {
	t.Helper()
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { page.Close() })
	a, err := client.NewAttached(client.Config{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Ended()
		a.Client().Close()
	})
	a.Connected(broker, page, 1)
	return a, page
}

// TestRefusalAfterTheDoorbell has the doorbell of an offer end before it is known why, as a busy
// machine may: the reason is told when it comes, though nothing is offered again.
func TestRefusalAfterTheDoorbell(t *testing.T) {
	broker := silentBroker{make(chan wire.Message, 16)}
	a, page := attachTo(t, broker)
	shadow, peer := tcpPair(t)
	defer peer.Close()
	page.SetListeners(uint16(shadow.RemoteAddr().(*net.TCPAddr).Port), 1, false)
	c, err := directsockets.NewConn(shadow, false, directsockets.Config{Broker: a.Client(), Eager: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	m := <-broker.offers
	go c.Read(make([]byte, 1)) // which finds the doorbell's end; the end of the test ends it
	reason := func(want directsockets.Reason) func() bool {
		return func() bool { return c.Stats().Reason == want }
	}
	eventually(t, "the doorbell's end is found", reason(directsockets.ReasonRefused))
	if err := a.Handle(wire.Message{Type: wire.Refused, ID: m.ID, Reason: wire.NoPair}, nil); err != nil {
		t.Fatal(err)
	}
	if got := c.Stats().Reason; got != directsockets.ReasonNoPair {
		t.Errorf("the reason is %v", got)
	}
}
