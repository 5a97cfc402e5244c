package pool

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exnet/fabric"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc/caller"
)

// Root of a container has an account of its own, and is shown as the user that it is.
func TestLeaseUser(t *testing.T) {
	for account, want := range map[caller.Account]Lease{
		caller.Root: {}, 1000: {UID: 1000}, caller.Guest: {UID: 0, Container: true},
	} {
		got := (&loan{account: account}).describeLease()
		if got.UID != want.UID || got.Container != want.Container {
			t.Errorf("%v: user %d, container %t", account, got.UID, got.Container)
		}
	}
}

// A lease whose time is over is looked at again when its deadline is, and not all the time.
func TestLookAfterTime(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}, Revoke: time.Hour, TTL: 2 * time.Hour})
	defer s.Close()
	l, _, why := s.lendTo(&recorder{}, request{size: wire.PageSize, min: wire.PageSize, time: time.Nanosecond})
	if why != wire.StatusOK {
		t.Fatal(why)
	}
	s.expireLoan(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.deadline.IsZero() {
		t.Fatal("its time is over, and it is not wanted back")
	}
	now := time.Now()
	if next := s.untilDueLocked(l, now); next != l.deadline.Sub(now) {
		t.Errorf("looked at again after %v, and its deadline is after %v", next, l.deadline.Sub(now))
	}
}

// A lease that is wanted for less time than borrowers have to renew theirs is wanted back when
// that time is over.
func TestShortTime(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}, Revoke: time.Hour, TTL: time.Hour})
	defer s.Close()
	for name, h := range map[string]holder{"another's": &recorder{}, "its own": s.own} {
		l, _, why := s.lendTo(h, request{size: wire.PageSize, min: wire.PageSize, time: time.Millisecond})
		if why != wire.StatusOK {
			t.Fatal(why)
		}
		wanted := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !l.May(lease.OnWanted)
		}
		for end := time.Now().Add(time.Minute); !wanted(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is not wanted back after its time", name)
			}
		}
	}
}

// linkTo is a Far whose link comes and goes.
type linkTo struct {
	Far
	mu    sync.Mutex
	since time.Time
	up    bool
}

func (l *linkTo) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.since = up, time.Now()
}

func (l *linkTo) Up(fabric.NodeID) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.up
}

func (*linkTo) Abandon(fabric.NodeID, uint64) {}

// The time without a link does not count for renewals: neither where the lender looks at a lease
// before the link is back, nor where it does so after that, and before the borrower's node
// renews.
func TestRenewAfterCut(t *testing.T) {
	for _, away := range []time.Duration{25 * time.Second, 29 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			link := &linkTo{up: true}
			s := New(Config{Limits: Limits{Lend: 1 << 20}})
			s.cfg.Far = link
			l, _, why := s.lendTo(&recorder{}, request{size: wire.PageSize, min: wire.PageSize})
			if why != wire.StatusOK {
				t.Fatal(why)
			}
			p, _ := peerOf(s)
			p.far = true
			s.mu.Lock()
			l.holder = p
			s.lookLaterLocked(l, time.Now())
			s.mu.Unlock()
			link.set(false)
			time.Sleep(away)
			link.set(true)
			ended := func() bool {
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				return l.Ended()
			}
			for range DefaultTTL/time.Second - 1 {
				if time.Sleep(time.Second); ended() {
					t.Fatalf("away for %v: its lease ends before it could renew it", away)
				}
			}
			if time.Sleep(DefaultTTL); !ended() {
				t.Errorf("away for %v: nobody renews its lease, which goes on", away)
			}
			s.Close()
		})
	}
}

// The time for which the lender was stopped does not count for renewals: those of the borrower's
// node are there, and not read. A node of this host need not renew.
func TestRenewAfterStop(t *testing.T) {
	for _, far := range []bool{false, true} {
		s := New(Config{Limits: Limits{Lend: 1 << 20}})
		s.cfg.Far = &linkTo{up: true}
		l, _, why := s.lendTo(&recorder{}, request{size: wire.PageSize, min: wire.PageSize})
		if why != wire.StatusOK {
			t.Fatal(why)
		}
		p, _ := peerOf(s)
		p.far = far
		later := func(renewed, due time.Duration) (ended bool) { // as if so long had passed
			s.mu.Lock()
			l.holder = p
			s.lookLaterLocked(l, time.Now())
			l.renewed, l.due = l.renewed.Add(-renewed), l.due.Add(-due)
			s.mu.Unlock()
			s.expireLoan(l)
			s.mu.Lock()
			defer s.mu.Unlock()
			return l.Ended()
		}
		if later(time.Minute, time.Minute) {
			t.Errorf("far %v: a lender that was stopped for a minute takes a lease that was renewed before", far)
		}
		if ended := later(DefaultTTL, 0); ended != far {
			t.Errorf("far %v: nobody renews a lease, and it has ended: %v", far, ended)
		}
		s.Close()
	}
}
