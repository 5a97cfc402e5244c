package shm

import (
	"sync"
	"sync/atomic"
	"time"
)

// probe measures the way to the peer's thread and back, when somebody asks for it:
//
//	this side                              peer
//	asked := number, event ───bell──▶ pump: echo := number, event
//	pump: ended            ◀──bell───
//
// Either thread is woken if it sleeps, as it is for a message.
type probe struct {
	waits atomic.Bool // one is under way

	mu       sync.Mutex
	begun    time.Time     // guarded by mu: the last one
	lastTook time.Duration // guarded by mu: the last one that was answered
	ended    chan struct{} // guarded by mu: closed by the answer
}

// RTT measures a round trip to the peer's thread, and waits for it up to limit. 0: no answer
// has come by then. A later call gets the one that comes.
func (l *Link) RTT(limit time.Duration) time.Duration {
	p := &l.probe
	p.mu.Lock()
	ended := p.ended
	begin := !p.waits.Load()
	if begin {
		ended = make(chan struct{})
		p.ended, p.begun = ended, time.Now()
		p.waits.Store(true)
		l.near.asked.Add(1)
	}
	p.mu.Unlock()
	if begin {
		l.wakePeer()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.lastTook
	case <-timer.C:
	case <-l.done:
	}
	return 0
}

// lookProbe answers a probe of the peer, and ends an own one that was answered. It is called
// when the peer has counted up its events.
func (l *Link) lookProbe() {
	if n := l.far.asked.Load(); n != l.near.echo.Load() {
		l.near.echo.Store(n)
		l.wakePeer()
	}
	p := &l.probe
	if !p.waits.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits.Load() && l.far.echo.Load() == l.near.asked.Load() {
		p.lastTook = max(time.Since(p.begun), 1)
		p.waits.Store(false)
		close(p.ended)
	}
}
