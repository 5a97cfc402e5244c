package velo_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/velo"
)

// credited collects the calls of OnCredit.
type credited struct {
	mu sync.Mutex
	// +checklocks:mu
	calls []fabric.NodeID
}

func watch(e *velo.Endpoint) *credited {
	c := new(credited)
	e.OnCredit(func(n fabric.NodeID) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, n)
	})
	return c
}

func (c *credited) take() []fabric.NodeID {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.calls
	c.calls = nil
	return got
}

// fill sends until the target refuses and returns how many messages went.
func fill(tb testing.TB, e *velo.Endpoint, n fabric.NodeID) (sent int) {
	tb.Helper()
	for {
		err := e.Send(to(n), []byte{1})
		if errors.Is(err, fabric.ErrAgain) {
			return sent
		}
		if err != nil {
			tb.Fatal(err)
		}
		sent++
	}
}

func TestCreditsRunOut(t *testing.T) {
	x, y := pair(t, velo.Config{Slots: 16, Credits: 5})
	c := watch(x)
	if n := x.Credits(1, vpid); n != 5 {
		t.Fatalf("%d credits at first, want 5", n)
	}
	if n := fill(t, x, 1); n != 5 {
		t.Fatalf("%d messages sent, want 5", n)
	}
	if n := x.Credits(1, vpid); n != 0 {
		t.Fatalf("%d credits after that", n)
	}
	if n := y.Credits(0, vpid); n != 5 {
		t.Fatalf("%d credits in the other direction, want 5", n)
	}
	fill(t, x, 1) // a second refusal belongs to the same episode
	for i, want := range []int{0, 0, 1, 1, 1} {
		read(t, y, 1)
		if n := x.Credits(1, vpid); n != i+1 {
			t.Errorf("%d credits after %d messages read", n, i+1)
		}
		c.mu.Lock()
		if n := len(c.calls); n != want {
			t.Errorf("%d calls of OnCredit after %d messages read, want %d", n, i+1, want)
		}
		c.mu.Unlock()
	}
	if got := c.take(); !slices.Equal(got, []fabric.NodeID{1}) {
		t.Errorf("OnCredit(%v)", got)
	}
	s := x.Stats()
	if s.NoCredit != 2 || s.CreditEvents != 1 || s.Sent != 5 {
		t.Errorf("counters %+v", s)
	}
	fill(t, x, 1) // the next episode
	drain(y)
	if got := c.take(); len(got) != 1 {
		t.Errorf("second episode: OnCredit(%v)", got)
	}
	drain(y)
	if got := c.take(); got != nil {
		t.Errorf("without a refusal: OnCredit(%v)", got)
	}
}

// Credits go back in batches; when the mailbox is empty all are back.
func TestCreditsComeBackCompletely(t *testing.T) {
	x, y := pair(t, velo.Config{})
	for range 100 {
		if err := x.Send(to(1), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	read(t, y, 40)
	if n := x.Credits(1, vpid); n < 28+40-15 || n > 28+40 {
		t.Errorf("%d credits after 40 of 100 were read", n)
	}
	y.EnableInterrupt()
	if n := x.Credits(1, vpid); n != 28+40 {
		t.Errorf("%d credits after EnableInterrupt, want %d", n, 28+40)
	}
	if n := drain(y); n != 60 {
		t.Errorf("%d messages left, want 60", n)
	}
	if n := x.Credits(1, vpid); n != 128 {
		t.Errorf("%d credits, mailbox empty, want 128", n)
	}
}

func TestWantCredits(t *testing.T) {
	x, y := pair(t, velo.Config{Slots: 16, Credits: 8})
	c := watch(x)
	want := func(n int, ok bool) {
		t.Helper()
		if got, err := x.WantCredits(1, vpid, n); err != nil || got != ok {
			t.Fatalf("WantCredits(%d): %v, %v", n, got, err)
		}
	}
	want(8, true)
	want(1000, true) // counts as all
	for range 6 {
		if err := x.Send(to(1), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	want(2, true)
	drain(y)
	if got := c.take(); got != nil {
		t.Fatalf("nobody was refused: OnCredit(%v)", got)
	}
	for range 6 {
		if err := x.Send(to(1), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	want(3, false)
	want(6, false) // the same episode, but more
	read(t, y, 3)
	if got := c.take(); got != nil {
		t.Fatalf("OnCredit(%v) at 5 credits, 6 are wanted", got)
	}
	read(t, y, 1)
	if got := c.take(); !slices.Equal(got, []fabric.NodeID{1}) {
		t.Fatalf("OnCredit(%v) at 6 credits", got)
	}
	if _, err := x.WantCredits(5, vpid, 1); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("unknown node: %v", err)
	}
	if _, err := x.WantCredits(1, 9, 1); !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("VPID not open: %v", err)
	}
}

// Each source gets its own credits back, however the messages of several alternate.
func TestCreditsOfAlternatingSources(t *testing.T) {
	nics := fabrictest.New(t, 3)
	dst := fabrictest.OpenVELO(t, nics[2], vpid, velo.Config{Credits: 64}) // they go back 8 at a time
	sources := []*velo.Endpoint{fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{}), fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})}
	for range 100 {
		for i, s := range sources {
			if err := s.Send(to(2), []byte{1}); err != nil {
				t.Fatalf("source %d: %v", i, err)
			}
		}
		read(t, dst, len(sources))
	}
	drain(dst)
	for i, s := range sources {
		if n := s.Credits(2, vpid); n != 64 {
			t.Errorf("source %d has %d credits, want 64", i, n)
		}
	}
}

// A source that floods cannot keep another one from sending.
func TestFloodDoesNotStarveOthers(t *testing.T) {
	nics := fabrictest.New(t, 3)
	flooder := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	modest := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
	dst := fabrictest.OpenVELO(t, nics[2], vpid, velo.Config{Slots: 64, Credits: 32})
	if n := fill(t, flooder, 2); n != 32 {
		t.Fatalf("the flooder sent %d messages, want 32", n)
	}
	for i := range 32 {
		if err := modest.Send(to(2), []byte{1}); err != nil {
			t.Fatalf("message %d beside a flooder: %v", i, err)
		}
	}
	if n := drain(dst); n != 64 {
		t.Errorf("%d messages arrived", n)
	}
	// Another mailbox of the flooding node has credits of its own.
	second := fabrictest.OpenVELO(t, nics[0], 2, velo.Config{})
	fill(t, flooder, 2)
	if err := second.Send(to(2), []byte{1}); err != nil {
		t.Errorf("another mailbox of the flooder's node: %v", err)
	}
}

// More sources than the ring has slots for: a full mailbox refuses, and wakes up
// everybody it refused.
func TestFullMailbox(t *testing.T) {
	const sources = 6
	nics := fabrictest.New(t, sources+1)
	dst := fabrictest.OpenVELO(t, nics[sources], vpid, velo.Config{Slots: 16, Credits: 8})
	var eps []*velo.Endpoint
	var calls []*credited
	sent := 0
	for i := range sources {
		e := fabrictest.OpenVELO(t, nics[i], vpid, velo.Config{})
		eps, calls = append(eps, e), append(calls, watch(e))
		sent += fill(t, e, sources)
	}
	if sent != 16 {
		t.Fatalf("%d messages in 16 slots", sent)
	}
	if n := eps[sources-1].Credits(sources, vpid); n != 8 {
		t.Errorf("a full mailbox cost the refused %d credits", 8-n)
	}
	if n := drain(dst); n != 16 {
		t.Fatalf("%d messages read", n)
	}
	for i, c := range calls {
		if got := c.take(); len(got) != 1 {
			t.Errorf("source %d: OnCredit(%v), want one call", i, got)
		}
	}
	if s := eps[sources-1].Stats(); s.MailboxFull != 1 || s.NoCredit != 0 {
		t.Errorf("counters %+v", s)
	}
}

// Whoever waits for credit is told when the peer goes away.
func TestWaitersAreWokenByTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		full bool
	}{
		{"credit", false},
		{"slots", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nics := fabrictest.New(t, 3)
			x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
			y := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{Slots: 8, Credits: 8})
			if tt.full {
				fill(t, fabrictest.OpenVELO(t, nics[2], vpid, velo.Config{}), 1)
			}
			c := watch(x)
			fill(t, x, 1)
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
			if got := c.take(); !slices.Equal(got, []fabric.NodeID{1}) {
				t.Fatalf("OnCredit(%v)", got)
			}
			if err := x.Send(to(1), []byte{1}); !errors.Is(err, fabric.ErrPeerDown) {
				t.Errorf("Send: %v", err)
			}
			y = fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
			if err := x.Send(to(1), []byte{1}); err != nil {
				t.Errorf("Send to the successor: %v", err)
			}
			if n := x.Credits(1, vpid); n != 127 {
				t.Errorf("%d credits of the successor", n)
			}
			read(t, y, 1)
		})
	}
}

// Senders that sleep until OnCredit, against a consumer that reads in bursts: no
// wake-up is lost, for credits and for slots.
func TestNoLostCredit(t *testing.T) {
	for _, cfg := range []velo.Config{
		{Slots: 16, Credits: 1},
		{Slots: 16, Credits: 4},
		{Slots: 8, Credits: 8}, // two sources: the ring fills
		{Slots: 2, Credits: 2},
		{Slots: 256, Credits: 128},
	} {
		const sources, senders, each = 2, 2, 2000
		nics := fabrictest.New(t, sources+1)
		dst := fabrictest.OpenVELO(t, nics[sources], vpid, cfg)
		var wg sync.WaitGroup
		for i := range sources {
			e := fabrictest.OpenVELO(t, nics[i], vpid, velo.Config{})
			// A generation counter stands for "the queue may go on".
			var mu sync.Mutex
			cond := sync.NewCond(&mu)
			gen := 0
			e.OnCredit(func(fabric.NodeID) {
				mu.Lock()
				gen++
				mu.Unlock()
				cond.Broadcast()
			})
			for s := range senders {
				wg.Go(func() {
					for range each {
						for {
							mu.Lock()
							seen := gen
							mu.Unlock()
							if s == 0 { // one of them asks before it sends
								if ok, err := e.WantCredits(sources, vpid, 3); err != nil {
									t.Error(err)
									return
								} else if !ok {
									mu.Lock()
									for gen == seen { // hangs if the wake-up is lost
										cond.Wait()
									}
									mu.Unlock()
									continue
								}
							}
							err := e.Send(to(sources), []byte{1})
							if err == nil {
								break
							}
							if !errors.Is(err, fabric.ErrAgain) {
								t.Error(err)
								return
							}
							mu.Lock()
							for gen == seen {
								cond.Wait()
							}
							mu.Unlock()
						}
					}
				})
			}
		}
		for n := 0; n < sources*senders*each; {
			n += drain(dst)
			runtime.Gosched()
		}
		wg.Wait()
	}
}

// OnCredit is called as often as there were episodes: never twice for one
// refusal.
func TestOnCreditOncePerEpisode(t *testing.T) {
	x, y := pair(t, velo.Config{Slots: 8, Credits: 4})
	var calls atomic.Int64
	x.OnCredit(func(fabric.NodeID) { calls.Add(1) })
	const rounds = 200
	for range rounds {
		fill(t, x, 1)
		fill(t, x, 1)
		drain(y)
	}
	if n := calls.Load(); n != rounds {
		t.Errorf("%d calls for %d episodes", n, rounds)
	}
	x.OnCredit(nil)
	fill(t, x, 1)
	drain(y)
	if n := calls.Load(); n != rounds {
		t.Error("a handler that was taken away was called")
	}
}
