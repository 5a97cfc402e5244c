package broker

import (
	"os"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
)

// A process that connects again, after it was refused, is refused at little cost, for a second and
// while its owner has no room; then it is served at once.
func TestRefusedAgain(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{Limited: true})
	greetRaw(t, s.Path())
	limit := func(n int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, u := range s.users {
			u.local.limits[clients] = n
		}
	}
	again := func() bool {
		ends := brokertest.SocketPair(t)
		defer ends[1].Close()
		is := s.refused.refuseAgain(s, ends[0])
		if !is {
			defer ends[0].Close()
		}
		if n, err := ends[1].Write([]byte("x")); (err != nil) != is {
			t.Errorf("refused: %v; then %d bytes can be sent: %v", is, n, err)
		}
		return is
	}
	if again() {
		t.Error("it is refused for the first time")
	}
	limit(1)
	first := dialRaw(t, s.Path())
	first.refused(0, wire.TooMany)
	first.disconnected()
	if !again() {
		t.Error("it is not known")
	}
	before := s.count.BadClients.Load()
	repeated := dialRaw(t, s.Path())
	repeated.refused(0, wire.TooMany)
	repeated.disconnected()
	if n := s.count.BadClients.Load() - before; n != 1 {
		t.Errorf("%d are counted", n)
	}
	limit(9)
	if again() {
		t.Error("there is room, and it is refused")
	}
	greetRaw(t, s.Path())
	limit(1)
	s.refused.mu.Lock()
	s.refused.bySlot[os.Getpid()%maxRefusals].when -= int64(refusedTime)
	s.refused.mu.Unlock()
	if again() {
		t.Error("it is refused for good")
	}
}
