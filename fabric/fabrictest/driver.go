package fabrictest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/link"
)

// Driver is a link.Driver with a goroutine that does nothing else.
type Driver struct {
	event int // eventfd
	done  chan struct{}

	mu    sync.Mutex
	links []link.Served // guarded by mu
	ended bool          // guarded by mu
}

// NewDriver returns a driver that ends when the test does, or before by End.
func NewDriver(tb testing.TB) *Driver {
	tb.Helper()
	d, err := StartDriver()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		d.End()
		unix.Close(d.event)
	})
	return d
}

// StartDriver is NewDriver for a process without tests.
func StartDriver() (*Driver, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	d := &Driver{event: fd, done: make(chan struct{})}
	go d.run()
	return d, nil
}

// Take implements link.Driver.
func (d *Driver) Take(s link.Served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.links = append(d.links, s)
	d.Wake()
	return true
}

// Wake implements link.Driver.
func (d *Driver) Wake() {
	unix.Write(d.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full: it is awake anyway
}

// End leaves all links.
func (d *Driver) End() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.Wake()
	<-d.done
}

func (d *Driver) run() {
	defer close(d.done)
	var rung []link.Served
	for {
		d.mu.Lock()
		links, ended := slices.Clone(d.links), d.ended
		d.mu.Unlock()
		busy := false
		for _, s := range links {
			n, ok := s.Serve(slices.Contains(rung, s))
			busy = busy || n > 0
			if !ok || ended {
				s.Leave()
				d.mu.Lock()
				d.links = slices.DeleteFunc(d.links, func(x link.Served) bool { return x == s })
				d.mu.Unlock()
				busy = true
			}
		}
		if rung = nil; ended {
			return
		}
		if !busy {
			rung = d.awaitReadable(links)
		}
	}
}

// awaitReadable returns the links whose descriptors are readable.
func (d *Driver) awaitReadable(links []link.Served) (rung []link.Served) {
	limit := link.Forever
	poll := []unix.PollFd{{Fd: int32(d.event), Events: unix.POLLIN}}
	for _, s := range links {
		switch t := s.Arm(); {
		case t == 0:
			return nil
		case t > 0 && (limit < 0 || t < limit):
			limit = t
		}
		poll = append(poll, unix.PollFd{Fd: int32(s.Fd()), Events: unix.POLLIN})
	}
	ms := -1
	if limit > 0 {
		ms = int((limit + time.Millisecond - 1) / time.Millisecond)
	}
	_, _ = unix.Poll(poll, ms) // EINTR: all are looked at
	var count [8]byte
	unix.Read(d.event, count[:]) // EAGAIN: it was not written
	for i, s := range links {
		if poll[1+i].Revents != 0 {
			rung = append(rung, s)
		}
	}
	return rung
}
