package daemon

import (
	"context"
	"sync"
	"time"

	"exnet/fabric/emp"
	"exnet/fabric/link/shm"
	"exnet/fabric/link/wire"
)

const (
	// sampleTime is how often the bytes of links are looked at that measure no rate themselves.
	sampleTime = time.Second
	// probeTime is how long a status waits for the answers of this host's nodes.
	probeTime = 50 * time.Millisecond
)

// rates are bytes a second over links, in the last full second.
//
// Concurrency: all methods may be called from many goroutines.
type rates struct {
	mu    sync.Mutex
	links map[emp.Link]sample // +checklocks:mu
}

// sample is what a link had carried at a time, and its rates before that.
type sample struct {
	at             time.Time
	tx, rx         uint64
	txRate, rxRate uint64
}

// sampleLinks takes the samples.
func (r *rates) sampleLinks(ctx context.Context, peers func() []emp.Peer) error {
	t := time.NewTicker(sampleTime)
	defer t.Stop()
	for {
		r.takeSample(time.Now(), peers())
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// takeSample takes a sample of each link.
func (r *rates) takeSample(now time.Time, peers []emp.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	links := make(map[emp.Link]sample, len(r.links))
	for _, p := range peers {
		s, ok := sample{at: now}, true
		switch l := p.Link.(type) {
		case *shm.Link:
			c := l.Stats()
			s.tx, s.rx = c.TxBytes, c.RxBytes
		case *wire.Link:
			c := l.Stats()
			s.tx, s.rx = c.TxBytes, c.RxBytes
		default:
			ok = false
		}
		if !ok {
			continue
		}
		if last, ok := r.links[p.Link]; ok {
			d := now.Sub(last.at)
			s.txRate, s.rxRate = perSecond(last.tx, s.tx, d), perSecond(last.rx, s.rx, d)
		}
		links[p.Link] = s
	}
	r.links = links
}

// perSecond is the rate of a counter, which is 0 once its link is down.
func perSecond(before, now uint64, d time.Duration) uint64 {
	if now < before || d <= 0 {
		return 0
	}
	return uint64(float64(now-before) / d.Seconds())
}

// ofLink returns the rates of a link; 0 before its second sample.
func (r *rates) ofLink(l emp.Link) (tx, rx uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.links[l]
	return s.txRate, s.rxRate
}

// probePeers measures the round trip to each peer whose link measures none itself, in microseconds;
// 0: it is no such link, or no answer has come in time.
func probePeers(peers []emp.Peer) []uint64 {
	trips := make([]uint64, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		if l, ok := p.Link.(*shm.Link); ok {
			wg.Go(func() { trips[i] = roundTrip(l.RTT(probeTime)) })
		}
	}
	wg.Wait()
	return trips
}

// roundTrip is one in microseconds, at least 1; 0: there is none.
func roundTrip(d time.Duration) uint64 {
	if d == 0 {
		return 0
	}
	return max(uint64(d/time.Microsecond), 1)
}
