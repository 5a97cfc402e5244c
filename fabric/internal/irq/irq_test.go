package irq

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOneShot(t *testing.T) {
	var l Line
	n := 0
	l.Raise() // disabled, no handler
	l.Handle(func() { n++ })
	l.Raise()
	if n != 0 {
		t.Fatal("fired while disabled")
	}
	l.Enable()
	l.Raise()
	l.Raise()
	if n != 1 || l.Fired() != 1 {
		t.Fatalf("fired %d times (counter %d), want 1: firing disables", n, l.Fired())
	}
	l.Enable()
	l.Disable()
	l.Raise()
	if n != 1 {
		t.Fatal("fired after Disable")
	}
}

func TestWithoutHandlerStaysEnabled(t *testing.T) {
	var l Line
	l.Enable()
	l.Raise()
	n := 0
	l.Handle(func() { n++ })
	l.Raise()
	if n != 1 {
		t.Fatal("a raise without handler used up the enable")
	}
	l.Enable()
	l.Handle(nil)
	l.Raise()
	if n != 1 {
		t.Fatal("a handler that was taken away ran")
	}
}

// The handler may enable and raise the line again.
func TestHandlerMayNest(t *testing.T) {
	var l Line
	n := 0
	l.Handle(func() {
		if n++; n < 3 {
			l.Enable()
			l.Raise()
		}
	})
	l.Enable()
	l.Raise()
	if n != 3 {
		t.Fatalf("handler ran %d times, want 3", n)
	}
}

// Writers publish and raise; the reader enables and looks. Everything that is
// published is read without polling.
func TestNoLostInterrupt(t *testing.T) {
	const writers, each = 4, 5000
	var (
		l         Line
		published atomic.Int64
		wake      = make(chan struct{}, 1)
		wg        sync.WaitGroup
	)
	l.Handle(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	l.Enable()
	for range writers {
		wg.Go(func() {
			for range each {
				published.Add(1)
				l.Raise()
			}
		})
	}
	hangs := time.After(time.Minute)
	for read := int64(0); read < writers*each; {
		select {
		case <-wake:
		case <-hangs:
			t.Fatalf("an interrupt is lost: the reader sleeps after %d of %d", read, published.Load())
		}
		for {
			read = published.Load()
			l.Enable()
			if published.Load() == read {
				break
			}
			l.Disable()
		}
	}
	wg.Wait()
}
