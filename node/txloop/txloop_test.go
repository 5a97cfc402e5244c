package txloop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
	"exnet/node/tun"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Packets reach the stack of their device with their offload metadata.
func TestPackets(t *testing.T) {
	netnstest.CheckFDs(t)
	ports, tr := newPorts(t, 2, 8)
	l, stop := start(t, Config{}, ports)
	p := packet(7, 100)
	off := exteth.Offload{Flags: 1, GSOType: exteth.GSOTCPv6, HdrLen: 60, GSOSize: 1400, CsumStart: 40, CsumOffset: 16}
	off.AppendHost(p[:0])
	ports[0].dev.put(nil, p)
	ports[1].dev.put(nil, packet(8, 65535), packet(9, 1))
	eventually(t, "all packets", func() bool { return tr.count(ports[0])+tr.count(ports[1]) == 3 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []gotPacket{
		{ports[0], off, 7, 100},
		{ports[1], exteth.Offload{}, 8, 65535},
		{ports[1], exteth.Offload{}, 9, 1},
	} {
		found := false
		for _, g := range tr.got {
			found = found || g == want
		}
		if !found {
			t.Errorf("%+v is missing", want)
		}
	}
	if s := l.Stats(); s.Packets != 3 || s.Bytes != 3*tun.VnetHdrLen+65636 || s.Bad != 0 || s.Waits == 0 {
		t.Errorf("%+v", s)
	}
	for _, p := range ports {
		p.allFree(t, 8)
		if n := p.unflushed.Load(); n != 0 {
			t.Errorf("the receivers of %d packets were not told about them", n)
		}
	}
}

// Receivers learn of packets after each burst, and before the loop waits.
func TestFlush(t *testing.T) {
	ports, tr := newPorts(t, 1, 8)
	p := ports[0]
	for range 40 {
		p.dev.put(nil, packet(1, 50))
	}
	_, stop := start(t, Config{Burst: 16}, ports)
	eventually(t, "all packets", func() bool { return tr.count(p) == 40 && p.unflushed.Load() == 0 })
	if n := p.flushes.Load(); n != 3 {
		t.Errorf("%d flushes for 16, 16 and 8 packets", n)
	}
	// What stops the interface is flushed too: it may be what takes its credit.
	p.stopAt.Store(43)
	p.dev.put(nil, packet(1, 1), packet(1, 1), packet(1, 1), packet(1, 1))
	eventually(t, "three packets more", func() bool { return tr.count(p) == 43 && p.unflushed.Load() == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A loop that has nothing to do rests in the Go scheduler, and is woken there.
func TestRest(t *testing.T) {
	ports, tr := newPorts(t, 1, 8)
	l, stop := start(t, Config{}, ports)
	for i := range 5 {
		eventually(t, "the loop rests", func() bool { return l.Stats().Rests == uint64(i+1) })
		ports[0].dev.put(nil, packet(1, 50))
		eventually(t, "a packet", func() bool { return tr.count(ports[0]) == i+1 })
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// No device waits for more than a burst of another.
func TestBurst(t *testing.T) {
	ports, tr := newPorts(t, 3, 8)
	for i, p := range ports {
		for range 100 {
			p.dev.put(nil, packet(byte(i), 50))
		}
	}
	const burst = 5
	_, stop := start(t, Config{Burst: burst}, ports)
	eventually(t, "all packets", func() bool { return tr.count(ports[0])+tr.count(ports[1])+tr.count(ports[2]) == 300 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i, g := range tr.got {
		if want := byte(i / burst % 3); g.first != want {
			t.Fatalf("packet %d is of device %d, want %d", i, g.first, want)
		}
	}
}

// A device whose interface is stopped is left unread, without spinning, and read
// again after Wake. The others go on meanwhile.
func TestStopped(t *testing.T) {
	ports, tr := newPorts(t, 2, 8)
	a, b := ports[0], ports[1]
	a.stopped.Store(true)
	l, stop := start(t, Config{}, ports)
	a.dev.put(nil, packet(1, 10), packet(1, 10))
	for i := range 20 {
		b.dev.put(nil, packet(2, 10))
		eventually(t, "the other device's packets", func() bool { return tr.count(b) == i+1 })
	}
	time.Sleep(5 * time.Millisecond)
	if n := tr.count(a); n != 0 || a.dev.left() != 2 {
		t.Errorf("%d packets of a stopped interface were read", n)
	}
	if s := l.Stats(); s.Stops != 1 || s.Waits > 60 {
		t.Errorf("%d stops, %d waits: the loop spins", s.Stops, s.Waits)
	}
	l.Wake() // but it is still stopped
	eventually(t, "a second look", func() bool { return l.Stats().Stops == 2 })
	a.stopped.Store(false)
	l.Wake()
	eventually(t, "the packets", func() bool { return tr.count(a) == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	a.allFree(t, 8)
}

// Without a buffer it is the same.
func TestNoBuffer(t *testing.T) {
	ports, tr := newPorts(t, 2, 2)
	a := ports[0]
	a.keep = true
	for range 5 {
		a.dev.put(nil, packet(1, 10))
	}
	l, stop := start(t, Config{}, ports)
	eventually(t, "two packets", func() bool { return tr.count(a) == 2 && l.Stats().Stops == 1 })
	for i := range 3 {
		tr.mu.Lock()
		b := tr.kept[i]
		tr.mu.Unlock()
		a.Free(b)
		l.Wake() // what exn's OnReady does
		eventually(t, "another packet", func() bool { return tr.count(a) == 3+i })
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, b := range tr.kept[3:] {
		a.Free(b)
	}
	a.allFree(t, 2)
}

// What cannot be a packet is counted, and costs no buffer.
func TestBadPacket(t *testing.T) {
	ports, tr := newPorts(t, 1, 1)
	l, stop := start(t, Config{}, ports)
	for n := range tun.VnetHdrLen {
		ports[0].dev.put(nil, make([]byte, n))
	}
	ports[0].dev.put(nil, packet(1, 20))
	eventually(t, "the good packet", func() bool { return tr.count(ports[0]) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Bad != tun.VnetHdrLen {
		t.Errorf("%d bad packets, want %d", s.Bad, tun.VnetHdrLen)
	}
	ports[0].allFree(t, 1)
}

// A device that is gone ends the loop with its error.
func TestDeviceGone(t *testing.T) {
	ports, tr := newPorts(t, 2, 4)
	_, stop := start(t, Config{}, ports)
	ports[0].dev.put(nil, packet(1, 10))
	eventually(t, "a packet", func() bool { return tr.count(ports[0]) == 1 })
	ports[1].dev.put(tun.ErrGone, packet(1, 10))
	eventually(t, "its last packet", func() bool { return tr.count(ports[1]) == 1 })
	if err := stop(); !errors.Is(err, tun.ErrGone) {
		t.Errorf("Run: %v, want ErrGone", err)
	}
	for _, p := range ports {
		p.allFree(t, 4)
	}
}

// Cancelling ends the loop, whatever it is at.
func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name string
		prep func(*fakePort)
	}{
		{"idle", func(*fakePort) {}},
		{"under load", func(p *fakePort) { p.dev.endless = packet(1, 1000); p.dev.put(nil) }},
		{"stopped", func(p *fakePort) { p.stopped.Store(true); p.dev.put(nil, packet(1, 1)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netnstest.CheckFDs(t)
			ports, _ := newPorts(t, 2, 4)
			tt.prep(ports[0])
			_, stop := start(t, Config{}, ports)
			time.Sleep(2 * time.Millisecond)
			if err := stop(); err != nil {
				t.Error(err)
			}
			ports[0].allFree(t, 4)
		})
	}
	t.Run("before", func(t *testing.T) {
		ports, _ := newPorts(t, 1, 4)
		l, err := New(Config{Ports: []Port{{Device: ports[0].dev, Interface: ports[0], Stack: ports[0]}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// After much traffic the loop naps before it waits, a few times; after little it
// does not, so that an answer is not delayed.
func TestNaps(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nap     time.Duration
		packets int
		naps    uint64
	}{
		{"little traffic", 0, 1, 0},
		{"much traffic", 0, 5, maxNaps},
		{"turned off", -1, 5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ports, tr := newPorts(t, 1, 8)
			for range tt.packets {
				ports[0].dev.put(nil, packet(1, 65535))
			}
			l, stop := start(t, Config{Nap: tt.nap}, ports)
			eventually(t, "the loop waits", func() bool { return tr.count(ports[0]) == tt.packets && l.Stats().Waits > 0 })
			if got := l.Stats().Naps; got != tt.naps {
				t.Errorf("%d naps, want %d", got, tt.naps)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Stopping and waking, packets and cancelling all at once: no wake-up is lost.
func TestStressWake(t *testing.T) {
	ports, tr := newPorts(t, 3, 2)
	l, stop := start(t, Config{Burst: 4}, ports)
	const packets = 3000
	var wg sync.WaitGroup
	for i, p := range ports {
		wg.Go(func() {
			for range packets {
				p.dev.put(nil, packet(byte(i), 20))
			}
		})
		wg.Go(func() {
			for range packets / 3 {
				p.stopped.Store(true)
				time.Sleep(time.Microsecond)
				p.stopped.Store(false)
				l.Wake()
			}
		})
	}
	wg.Wait()
	eventually(t, "all packets", func() bool {
		return tr.count(ports[0])+tr.count(ports[1])+tr.count(ports[2]) == 3*packets
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{Burst: -1}); err == nil {
		t.Error("a negative burst is taken")
	}
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := ""
	for name := range l.Stats().All() {
		names += name + " "
	}
	if names != "packets bytes received bad waits rests naps spins caught glanced moves stops " {
		t.Errorf("counters %s", names)
	}
}

// BenchmarkLoop is the loop's own part of a packet: reading and handing on, with
// a device and a stack that do nearly nothing.
func BenchmarkLoop(b *testing.B) {
	for _, size := range []int{64, 1500, 65535} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			ports, _ := newPorts(b, 1, 4)
			dev := &countDevice{fakeDevice: ports[0].dev, left: b.N, size: size, done: make(chan struct{})}
			l, err := New(Config{Ports: []Port{{Device: dev, Interface: ports[0], Stack: freeStack{ports[0].Port}}}})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			go func() { ended <- l.Run(ctx) }()
			<-dev.done
			b.StopTimer()
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			l.Close()
		})
	}
}

// countDevice has a number of packets, and closes done after the last.
type countDevice struct {
	*fakeDevice
	left, size int
	done       chan struct{}
}

func (d *countDevice) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, tun.ErrAgain
	}
	if d.left--; d.left == 0 {
		close(d.done)
	}
	binary.NativeEndian.PutUint16(b, 0)
	clear(b[2:tun.VnetHdrLen])
	return tun.VnetHdrLen + d.size, nil
}

// freeStack drops packets.
type freeStack struct{ port *exteth.Port }

func (s freeStack) FromHost(b *exteth.TxBuffer) { s.port.Free(b) }

// A loop that finds what comes by looking takes one packet of a device that has not had its
// turn just before, and then looks for the answer; otherwise, and of much, it takes a burst.
func TestTurns(t *testing.T) {
	ports, tr := newPorts(t, 1, 8)
	p := ports[0]
	l, err := New(Config{Ports: []Port{{Device: p.dev, Interface: p, Stack: p}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		name  string
		spins int
		load  int
		home  int
		want  [2]int // packets after each of two reads
	}{
		{"it waits", 0, 0, 0, [2]int{3, 3}},
		{"it looks", 1, 0, 0, [2]int{1, 3}},
		{"it looks, much is sent", 1, smallBytes + 1, 0, [2]int{3, 3}},
		{"it has rested", 0, 0, 1, [2]int{1, 2}},
	} {
		before := tr.count(p)
		l.turn, l.spin.row, l.home.thread = nil, c.spins, c.home
		l.load.noteWait()
		l.load.addBytes(c.load, 0)
		p.dev.put(nil, packet(1, 50), packet(1, 50), packet(1, 50))
		for i, want := range c.want {
			if _, err := l.readBurst(&l.ports[0]); err != nil {
				t.Fatal(err)
			}
			if got := tr.count(p) - before; got != want {
				t.Errorf("%s: %d packets after %d reads, want %d", c.name, got, i+1, want)
			}
		}
	}
	l.releaseHeld()
}
