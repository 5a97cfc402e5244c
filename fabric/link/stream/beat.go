package stream

import (
	"errors"
	"sync"
	"time"
)

// maxSilence is how many times Config.DownAfter a ping may stay unanswered by a peer that
// is heard of: one that sends and does not read; and a transfer without a byte.
const maxSilence = 10

// beat asks the peer for a sign of life in turn, and measures the round trip.
type beat struct {
	mu    sync.Mutex
	timer *time.Timer // guarded by mu

	begun  time.Time
	last   time.Time // guarded by mu: of the last beat
	asked  uint64    // guarded by mu: the ping that is not answered; 0: there is none
	at     time.Time // guarded by mu: when it was asked
	silent int       // guarded by mu: beats since something was heard
	open   int       // guarded by mu: beats since the ping was asked
	rx, tx uint64    // guarded by mu: bytes at the last beat
	old    int       // guarded by mu: beats since the last round trip began
	asks   bool      // guarded by mu: the peer has asked since the last beat
}

// stale is after how many beats the round trip is measured anew. In between one side asks:
// that the peer asks is a sign of life, too.
const stale = 10

// startTimer begins to beat.
func (b *beat) startTimer(l *Link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = time.Now()
	b.last, b.old = b.begun, stale
	b.timer = time.AfterFunc(0, func() { b.timerFired(l) }) // at once: the round trip is to be known
}

// stopTimer ends it. A tick may still run.
func (b *beat) stopTimer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
	}
}

// timerFired is the timer's.
func (b *beat) timerFired(l *Link) {
	if l.down.Load() {
		return
	}
	ask, dead := b.nextBeat(l, time.Now())
	if dead {
		l.takeDown(ErrSilent)
		return
	}
	if l.isStalled(maxSilence * l.cfg.downBeats()) {
		l.takeDown(ErrStuck)
		return
	}
	if ask != 0 {
		l.queueMessage(&message{kind: kindPing, word: ask})
		l.scheduleSend()
	}
}

// nextBeat does what a beat does, and returns the ping to send, or 0, and whether the peer is
// dead. Beats are counted, not time: a process that was stopped for a while has not
// listened.
func (b *beat) nextBeat(l *Link, now time.Time) (ask uint64, dead bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rx, tx := l.count.RxBytes.Load(), l.count.TxBytes.Load()
	if d := now.Sub(b.last); d > 0 {
		l.count.RxRate.Store(uint64(float64(rx-b.rx) / d.Seconds()))
		l.count.TxRate.Store(uint64(float64(tx-b.tx) / d.Seconds()))
	}
	b.silent++
	if rx != b.rx {
		b.silent = 0
	}
	b.last, b.rx, b.tx = now, rx, tx
	most := l.cfg.downBeats()
	b.open++
	if b.silent > most && !l.hasUnread() || b.asked != 0 && b.open > maxSilence*most {
		return 0, true
	}
	b.timer.Reset(l.cfg.Heartbeat)
	b.old++
	asks := b.asks
	b.asks = false
	if b.asked != 0 || asks && b.old < stale {
		return 0, false
	}
	b.open, b.old, b.at = 0, 0, now
	b.asked = uint64(now.Sub(b.begun)) + 1
	return b.asked, false
}

// noteAsked is called by the pump: the peer has asked.
func (b *beat) noteAsked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = true
}

// pingAnswered is called by the pump: a ping was answered.
func (b *beat) pingAnswered(l *Link, word uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked == 0 || word != b.asked {
		return errors.New("pong without a ping")
	}
	b.asked = 0
	l.count.RTTMicros.Store(uint64(max(time.Since(b.at), time.Microsecond) / time.Microsecond))
	return nil
}

// hasUnread reports whether something has come that was not read yet: then it is this side
// that is slow.
//
// +checklocksignore: it does not know TryLock
func (l *Link) hasUnread() bool {
	if !l.pumping.TryLock() {
		return true // somebody reads
	}
	defer l.pumping.Unlock()
	for _, c := range l.conns {
		if c.hasUnread() {
			return true
		}
	}
	return false
}
