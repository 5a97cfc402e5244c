package pool

import (
	"sync"
	"testing"
	"time"

	"exnet/memory/wire"
)

// recorder is a holder that counts what it is told.
type recorder struct{ revoked, gone int }

func (r *recorder) revokeLocked(uint64, time.Time) { r.revoked++ }
func (r *recorder) goneLocked(uint64, wire.Status) { r.gone++ }

// Whoever has not got the answer that gives it a loan is told nothing of the loan: it would not
// know it. It is told afterwards.
func TestRevokedBeforeAnswer(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}})
	defer s.Close()
	h := &recorder{}
	l, _, why := s.lendTo(h, request{size: wire.PageSize, min: wire.PageSize})
	if why != wire.StatusOK {
		t.Fatal(why)
	}
	if n := s.Revoke(func(Lease) bool { return true }, time.Hour); n != 1 || h.revoked != 0 {
		t.Errorf("%d loans are revoked, told %d times before the answer", n, h.revoked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.Answered()
	l.Answered()
	if h.revoked != 1 || h.gone != 0 {
		t.Errorf("told %d times after the answer, gone %d", h.revoked, h.gone)
	}
}

// A lease that would end later than a message can say ends then.
func TestUntilFar(t *testing.T) {
	s := New(Config{Limits: Limits{Lend: 1 << 20}})
	defer s.Close()
	const year = 365 * 24 * time.Hour
	for _, years := range []time.Duration{1, 200, 240, 292} {
		l, _, _ := s.lendTo(&recorder{}, request{size: wire.PageSize, min: wire.PageSize, time: years * year})
		if at := time.Unix(0, l.until.UnixNano()); !at.Equal(l.until.Round(0)) || at.Before(l.since) {
			t.Errorf("%d years from now are told as %v", years, at)
		}
	}
}

// A peer's requests that come while the Server closes are not answered. -race sees what else
// they do.
func TestCloseAsked(t *testing.T) {
	for range 20 {
		s := New(Config{Limits: Limits{Lend: 1 << 20}})
		p, _ := peerOf(s)
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 20 {
				_ = p.handleRequest(&heard{Message: wire.Message{Op: wire.OpZero, Number: uint32(i), B: wire.PageSize}})
				time.Sleep(10 * time.Microsecond)
			}
		})
		time.Sleep(50 * time.Microsecond)
		s.Close()
		all.Wait()
	}
}
