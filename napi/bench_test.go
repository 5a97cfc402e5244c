package napi

import (
	"context"
	"runtime"
	"testing"
)

// nullPoller is always found to have one frame, or exhausted.
type nullPoller struct{ work Work }

func (p *nullPoller) Poll(int) Work         { return p.work }
func (p *nullPoller) PollFrame() Work       { return p.work }
func (p *nullPoller) EnableInterrupt() bool { return false }
func (p *nullPoller) DisableInterrupt()     {}
func (p *nullPoller) RaiseInterrupt()       {}

// BenchmarkInterrupt is the path of a ping-pong: an interrupt, one poll of one
// frame, complete. The Poll itself does nothing, so this is what scheduling
// costs.
func BenchmarkInterrupt(b *testing.B) {
	c := newContext(b, Config{})
	s, err := c.Register(SourceConfig{Poller: &nullPoller{Work{1, 64}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Interrupt()
	}
}

// BenchmarkPoll is a full poll on the list: what scheduling costs a stream, for
// each budget of 64 frames.
func BenchmarkPoll(b *testing.B) {
	c := newContext(b, Config{})
	p := &countdownPoller{}
	s, err := c.Register(SourceConfig{Poller: p})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	p.left = b.N
	b.ResetTimer()
	s.Interrupt()
}

type countdownPoller struct {
	nullPoller
	left int
}

func (p *countdownPoller) Poll(budget int) Work {
	if p.left--; p.left < 0 {
		return Work{}
	}
	return Work{budget, 64 * budget}
}

// BenchmarkThreaded is the same through Run's goroutine: what waking it costs.
func BenchmarkThreaded(b *testing.B) {
	c := newContext(b, Config{InlineBudget: -1})
	p := &signalPoller{polled: make(chan struct{})}
	s, err := c.Register(SourceConfig{Poller: p})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for word(c.word.Load())&aliveBit == 0 {
		runtime.Gosched()
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Interrupt()
		<-p.polled
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// signalPoller says when it was polled.
type signalPoller struct {
	nullPoller
	polled chan struct{}
}

func (p *signalPoller) Poll(int) Work {
	p.polled <- struct{}{}
	return Work{1, 64}
}
