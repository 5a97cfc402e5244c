package pool

import (
	"testing"
	"time"

	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc/caller"
)

// Root of a container has an account of its own, and is shown as the user that it is.
func TestLeaseUser(t *testing.T) {
	for account, want := range map[caller.Account]Lease{
		caller.Root: {}, 1000: {UID: 1000}, caller.Guest: {UID: 0, Container: true},
	} {
		got := (&loan{account: account}).lease()
		if got.UID != want.UID || got.Container != want.Container {
			t.Errorf("%v: user %d, container %t", account, got.UID, got.Container)
		}
	}
}

// A lease whose time is over is looked at again when its deadline is, and not all the time.
func TestLookAfterTime(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}, Revoke: time.Hour, TTL: 2 * time.Hour})
	defer s.Close()
	l, _, why := s.lend(&recorder{}, request{size: wire.PageSize, min: wire.PageSize, time: time.Nanosecond})
	if why != wire.StatusOK {
		t.Fatal(why)
	}
	s.look(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.deadline.IsZero() {
		t.Fatal("its time is over, and it is not wanted back")
	}
	now := time.Now()
	if next := s.nextLocked(l, now); next != l.deadline.Sub(now) {
		t.Errorf("looked at again after %v, and its deadline is after %v", next, l.deadline.Sub(now))
	}
}

// A lease that is wanted for less time than borrowers have to renew theirs is wanted back when that
// time is over.
func TestShortTime(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}, Revoke: time.Hour, TTL: time.Hour})
	defer s.Close()
	for name, h := range map[string]holder{"another's": &recorder{}, "its own": s.own} {
		l, _, why := s.lend(h, request{size: wire.PageSize, min: wire.PageSize, time: time.Millisecond})
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
