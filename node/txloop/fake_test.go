package txloop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/foreign"
	"exnet/node/tun"

	"golang.org/x/sys/unix"
)

// fakeDevice is a TUN device whose packets come from the test. Its descriptor is
// an eventfd, readable as long as there are packets.
type fakeDevice struct {
	fd int

	mu      sync.Mutex
	packets [][]byte // guarded by mu; each with its virtio-net header
	endless []byte   // guarded by mu; comes repeatedly
	fail    error    // guarded by mu; what Read returns without packets
	reads   int      // guarded by mu
}

func newDevice(tb testing.TB) *fakeDevice {
	tb.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	return &fakeDevice{fd: fd}
}

func (d *fakeDevice) Fd() int { return d.fd }

func (d *fakeDevice) Read(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	switch {
	case d.endless != nil:
		return copy(b, d.endless), nil
	case len(d.packets) == 0:
		if d.fail != nil {
			return 0, d.fail
		}
		return 0, tun.ErrAgain
	}
	n := copy(b, d.packets[0])
	d.packets = d.packets[1:]
	if len(d.packets) == 0 && d.fail == nil {
		var count [8]byte
		unix.Read(d.fd, count[:])
	}
	return n, nil
}

// put adds packets, or has Read fail with err after those that are there.
func (d *fakeDevice) put(err error, packets ...[]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.packets = append(d.packets, packets...)
	d.fail = err
	unix.Write(d.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (d *fakeDevice) left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.packets)
}

// packet makes a packet of n bytes, all of them b, after an empty header.
func packet(b byte, n int) []byte {
	p := make([]byte, tun.VnetHdrLen+n)
	for i := range n {
		p[tun.VnetHdrLen+i] = b
	}
	return p
}

// fakePort is a Port whose Stack keeps what it gets.
type fakePort struct {
	*exteth.Port // Alloc and Free
	dev          *fakeDevice
	stopped      atomic.Bool
	stopAt       atomic.Int64 // stopped once that many packets came
	keep         bool         // the Stack does not give buffers back

	unflushed, flushes atomic.Int64

	trace *trace
}

// trace is what the stacks of all ports got, in order.
type trace struct {
	mu   sync.Mutex
	got  []gotPacket // guarded by mu
	kept []*exteth.TxBuffer
}

type gotPacket struct {
	port   *fakePort
	off    exteth.Offload
	first  byte
	length int
}

func (t *trace) count(p *fakePort) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.got {
		if g.port == p {
			n++
		}
	}
	return n
}

func (p *fakePort) Stopped() bool {
	if n := p.stopAt.Load(); n > 0 && p.trace.count(p) >= int(n) {
		return true
	}
	return p.stopped.Load()
}

func (p *fakePort) Flush() {
	p.unflushed.Store(0)
	p.flushes.Add(1)
}

// FromHost implements Stack.
func (p *fakePort) FromHost(b *exteth.TxBuffer) {
	g := gotPacket{port: p, off: b.Offload, length: len(b.Packet())}
	if g.length > 0 {
		g.first = b.Packet()[g.length-1]
	}
	p.trace.mu.Lock()
	p.trace.got = append(p.trace.got, g)
	if p.keep {
		p.trace.kept = append(p.trace.kept, b)
	}
	p.trace.mu.Unlock()
	p.unflushed.Add(1)
	if !p.keep {
		p.Free(b)
	}
}

// newPorts makes ports with so many buffers each, and what they have in common.
func newPorts(tb testing.TB, n, buffers int) ([]*fakePort, *trace) {
	tb.Helper()
	tr := new(trace)
	var ports []*fakePort
	for i := range n {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(i)})
		if err != nil {
			tb.Fatal(err)
		}
		p, err := exteth.Open(card, exteth.Config{Buffers: buffers, Receiver: noReceiver{}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { p.Close(); card.Close() })
		ports = append(ports, &fakePort{Port: p, dev: newDevice(tb), trace: tr})
	}
	return ports, tr
}

type noReceiver struct{}

func (noReceiver) ReceiveFrame(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }

// start runs a Loop over the ports until the returned function is called, which
// returns Run's error.
func start(tb testing.TB, cfg Config, ports []*fakePort) (*Loop, func() error) {
	tb.Helper()
	for _, p := range ports {
		cfg.Ports = append(cfg.Ports, Port{Device: p.dev, Interface: p, Stack: p})
	}
	l, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(3 * time.Minute):
			return fmt.Errorf("Run does not return after it was cancelled: %+v", l.Stats())
		}
	})
	tb.Cleanup(func() {
		stop()
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l, stop
}

// allFree fails the test unless all of a port's buffers are free.
func (p *fakePort) allFree(tb testing.TB, buffers int) {
	tb.Helper()
	var all []*exteth.TxBuffer
	for b := p.Alloc(); b != nil; b = p.Alloc() {
		all = append(all, b)
	}
	if len(all) != buffers {
		tb.Errorf("%d of %d buffers are free", len(all), buffers)
	}
	for _, b := range all {
		p.Free(b)
	}
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("timeout: %s", what)
		}
	}
}
