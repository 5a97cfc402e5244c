package stream_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/netns"
	"exnet/node/hostnet"
	"exnet/node/txloop"
)

const (
	vpid       = fabric.VPID(1)
	congestion = "reno" // of all connections that are measured
	roundTime  = 200 * time.Millisecond
	getSize    = 64 << 10
	getDepth   = 16
)

// veth makes two namespaces that share nothing but a veth pair, and returns what makes
// connections between them.
func veth(tb testing.TB) func(testing.TB) (a, b net.Conn) {
	tb.Helper()
	if !netns.Privileged() {
		tb.Skip("makes namespaces: needs root")
	}
	var spaces [2]*netns.NS
	var pair [2]hostnet.VethEnd
	for i := range spaces {
		ns, err := netns.New()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { ns.Close() })
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + i)}), 24)
		spaces[i] = ns
		pair[i] = hostnet.VethEnd{NS: ns, Name: "veth0", Config: hostnet.LinkConfig{Addrs: []netip.Prefix{addr}}}
	}
	if err := hostnet.CreateVeth(pair[0], pair[1]); err != nil {
		tb.Fatal(err)
	}
	control := hostnet.ControlCongestion(congestion)
	listen, dial := net.ListenConfig{Control: control}, net.Dialer{Control: control}
	var ln net.Listener
	if err := spaces[1].Do(func() (err error) { ln, err = listen.Listen(tb.Context(), "tcp4", "10.9.0.2:0"); return err }); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ln.Close() })
	return func(tb testing.TB) (a, b net.Conn) {
		tb.Helper()
		if err := spaces[0].Do(func() (err error) { a, err = dial.Dial("tcp4", ln.Addr().String()); return err }); err != nil {
			tb.Fatal(err)
		}
		b, err := ln.Accept()
		if err != nil {
			tb.Fatal(err)
		}
		return a, b
	}
}

// loop is a driver as the daemon has it.
func loop(tb testing.TB) link.Driver {
	tb.Helper()
	l, err := txloop.New(txloop.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		l.Close()
	})
	return l
}

// joined are two nodes with a link between them, each with a loop.
func joined(tb testing.TB, cfg fabrictest.StreamConfig) (x, y *nic.NIC, lx *stream.Link) {
	tb.Helper()
	x, y = fabrictest.NewNIC(tb, 0), fabrictest.NewNIC(tb, 1)
	cfg.Link.Driver = loop(tb)
	lx, _ = fabrictest.JoinStream(tb, x, y, cfg, loop(tb))
	return x, y, lx
}

// usage is what a round found.
type usage struct {
	ops      int64
	time     time.Duration
	cpu      time.Duration // of the process, user and system: of both ends
	perOp    time.Duration
	busyCore float64 // operations a second and busy core
}

func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // only a bad argument fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure counts how far count comes in a round.
func measure(count *atomic.Int64) usage {
	first, cpu, begun := count.Load(), cpuTime(), time.Now()
	time.Sleep(roundTime)
	u := usage{ops: count.Load() - first, time: time.Since(begun), cpu: cpuTime() - cpu}
	u.perOp = u.time / time.Duration(max(u.ops, 1))
	u.busyCore = float64(u.ops) / max(u.cpu.Seconds(), 1e-9)
	return u
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// blocking is the socket of a connection, which blocks its thread as a C program's does.
func blocking(tb testing.TB, c net.Conn) int {
	tb.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	fd := -1
	if cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil || err != nil {
		tb.Fatal(cerr, err)
	}
	c.Close()
	tb.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetNonblock(fd, false); err != nil {
		tb.Fatal(err)
	}
	return fd
}

// gets has x read y's memory over and over, in the driver's thread, while on is set. drain waits
// for those that are on their way then.
func gets(tb testing.TB, x, y *nic.NIC, count *atomic.Int64) (on *atomic.Bool, start, drain func()) {
	tb.Helper()
	ex, _ := fabrictest.OpenRMA(tb, x, vpid, rma.Config{}), fabrictest.OpenRMA(tb, y, vpid, rma.Config{})
	dst := fabrictest.Register(tb, x, vpid, getSize*getDepth, atu.Write)
	src := fabrictest.Register(tb, y, vpid, getSize, atu.Read)
	nla, err := src.Lend(0)
	if err != nil {
		tb.Fatal(err)
	}
	on = new(atomic.Bool)
	under := make(chan int, getDepth) // free places
	for i := range getDepth {
		under <- i
	}
	post := func() {
		for on.Load() {
			select {
			case i := <-under:
				if err := ex.Get(rma.GetReq{Local: dst.NLA() + atu.NLA(i*getSize), Remote: nla, Len: getSize, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}); err != nil {
					tb.Error(err)
					return
				}
			default:
				return
			}
		}
	}
	handle := func() {
		for {
			n, ok := ex.Next()
			if !ok {
				if !ex.EnableInterrupt() {
					return
				}
				continue
			}
			if n.Status != fabric.StatusOK {
				tb.Error(n.Status)
				return
			}
			under <- int(n.Local-dst.NLA()) / getSize
			count.Add(1)
			post()
		}
	}
	ex.OnInterrupt(handle)
	ex.EnableInterrupt()
	return on, post, func() {
		for len(under) < getDepth && !tb.Failed() {
			time.Sleep(time.Millisecond)
		}
	}
}

// BenchmarkGet compares a stream of GETs with kernel TCP over the same veth, an encrypted one with
// package tls over it, round by round: with -benchtime 7x the figures are medians of seven.
func BenchmarkGet(b *testing.B) {
	for _, kind := range []struct {
		name  string
		conns int
		tls   bool
	}{{"conns=1", 1, false}, {"conns=4", 4, false}, {"tls", 1, true}} {
		b.Run(kind.name, func(b *testing.B) {
			connect := veth(b)
			x, y, lx := joined(b, fabrictest.StreamConfig{Conns: kind.conns, TLS: kind.tls, Pipe: connect})
			var ours, theirs atomic.Int64
			on, start, drain := gets(b, x, y, &ours)
			begin, control := newControl, "TCP"
			if kind.tls {
				begin, control = newTLSControl, "TLS"
			}
			alone := begin(b, connect, &theirs)
			var ratio, rate, tcpRate, share []float64
			for range b.N {
				alone.run(func() {
					u := measure(&theirs)
					tcpRate = append(tcpRate, u.busyCore*getSize*8/1e9)
				})
				on.Store(true)
				start()
				time.Sleep(20 * time.Millisecond)
				u := measure(&ours)
				on.Store(false)
				time.Sleep(10 * time.Millisecond)
				rate = append(rate, u.busyCore*getSize*8/1e9)
				share = append(share, float64(u.ops)*getSize*8/1e9/u.time.Seconds())
				ratio = append(ratio, rate[len(rate)-1]/tcpRate[len(tcpRate)-1])
			}
			drain()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ratio), "of-"+control)
			b.ReportMetric(median(rate), "Gbit/s/core")
			b.ReportMetric(median(tcpRate), control+"-Gbit/s/core")
			b.ReportMetric(median(share), "Gbit/s")
			b.Logf("%+v", lx.Stats())
		})
	}
}

// control is kernel TCP as a C program uses it: a thread that writes and one that reads.
type control struct {
	on    atomic.Bool
	begin chan struct{}
	ended chan struct{}
}

func newControl(tb testing.TB, connect func(testing.TB) (a, b net.Conn), count *atomic.Int64) *control {
	tb.Helper()
	a, b := connect(tb)
	fa, fb := blocking(tb, a), blocking(tb, b)
	write := func(p []byte) (int, error) { return unix.Write(fa, p) }
	read := func(p []byte) (int, error) { return unix.Read(fb, p) }
	return flow(tb, count, write, read, func() { unix.Shutdown(fa, unix.SHUT_WR) })
}

// newTLSControl is package tls over kernel TCP, as a Go program uses it.
func newTLSControl(tb testing.TB, connect func(testing.TB) (a, b net.Conn), count *atomic.Int64) *control {
	tb.Helper()
	a, b := connect(tb)
	client, server := tls.Client(a, fabrictest.TLSConfig(tb)), tls.Server(b, fabrictest.TLSConfig(tb))
	tb.Cleanup(func() { a.Close(); b.Close() })
	return flow(tb, count, client.Write, server.Read, func() { client.Close() })
}

// flow has one thread write and another one read, until end.
func flow(tb testing.TB, count *atomic.Int64, write, read func([]byte) (int, error), end func()) *control {
	tb.Helper()
	c := &control{begin: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		buf := make([]byte, getSize)
		for range c.begin {
			for c.on.Load() {
				if _, err := write(buf); err != nil {
					tb.Error(err)
					break
				}
			}
			c.ended <- struct{}{}
		}
		end()
	}()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		buf := make([]byte, getSize)
		for got := int64(0); ; {
			n, err := read(buf)
			if n <= 0 || err != nil {
				return
			}
			got += int64(n)
			count.Store(got / getSize)
		}
	}()
	tb.Cleanup(func() {
		close(c.begin)
		<-gone
	})
	return c
}

// run has data flow while f runs.
func (c *control) run(f func()) {
	c.on.Store(true)
	c.begin <- struct{}{}
	time.Sleep(20 * time.Millisecond)
	f()
	c.on.Store(false)
	<-c.ended
}

// BenchmarkRoundTrip compares the round trip of 64 bytes, answered in the driver's thread,
// with that of kernel TCP between two threads that block.
func BenchmarkRoundTrip(b *testing.B) {
	const size = 64
	connect := veth(b)
	x, y, lx := joined(b, fabrictest.StreamConfig{Conns: 1, Pipe: connect})
	var ours, theirs atomic.Int64
	var on atomic.Bool
	ex, ey := fabrictest.OpenVELO(b, x, vpid, velo.Config{}), fabrictest.OpenVELO(b, y, vpid, velo.Config{})
	fabrictest.Eventually(b, "mailboxes", func() bool { return ex.Credits(1, vpid) > 0 && ey.Credits(0, vpid) > 0 })
	msg := make([]byte, size)
	answer := func(e *velo.Endpoint, to fabric.NodeID, count *atomic.Int64) func() {
		return func() {
			for {
				_, p, ok := e.Peek()
				if !ok {
					if !e.EnableInterrupt() {
						return
					}
					continue
				}
				_ = p[0]
				e.Advance()
				if count != nil {
					count.Add(1)
					if !on.Load() {
						continue
					}
				}
				if err := e.Send(velo.Descriptor{Dst: to, VPID: vpid}, msg); err != nil {
					b.Error(err)
				}
			}
		}
	}
	ex.OnInterrupt(answer(ex, 1, &ours))
	ey.OnInterrupt(answer(ey, 0, nil))
	ex.EnableInterrupt()
	ey.EnableInterrupt()
	a, c := connect(b)
	fa, fc := blocking(b, a), blocking(b, c)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		buf := make([]byte, size)
		for {
			if n, err := unix.Read(fc, buf); n <= 0 || err != nil {
				return
			}
			if _, err := unix.Write(fc, buf); err != nil {
				return
			}
		}
	}()
	var ratio, times, tcpTimes, cpu []float64
	for range b.N {
		var tcp usage
		ended := make(chan struct{})
		var tcpOn atomic.Bool
		tcpOn.Store(true)
		go func() {
			defer close(ended)
			runtime.LockOSThread()
			buf := make([]byte, size)
			for tcpOn.Load() {
				if _, err := unix.Write(fa, buf); err != nil {
					b.Error(err)
					return
				}
				if n, err := unix.Read(fa, buf); n <= 0 || err != nil {
					b.Error(n, err)
					return
				}
				theirs.Add(1)
			}
		}()
		tcp = measure(&theirs)
		tcpOn.Store(false)
		<-ended
		on.Store(true)
		if err := ex.Send(velo.Descriptor{Dst: 1, VPID: vpid}, msg); err != nil {
			b.Fatal(err)
		}
		u := measure(&ours)
		on.Store(false)
		time.Sleep(5 * time.Millisecond)
		times = append(times, float64(u.perOp)/1e3)
		tcpTimes = append(tcpTimes, float64(tcp.perOp)/1e3)
		ratio = append(ratio, float64(u.perOp)/float64(tcp.perOp))
		cpu = append(cpu, tcp.busyCore/u.busyCore)
	}
	unix.Shutdown(fa, unix.SHUT_WR)
	<-gone
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times), "µs")
	b.ReportMetric(median(tcpTimes), "TCP-µs")
	b.ReportMetric(median(ratio), "of-TCP")
	b.ReportMetric(median(cpu), "CPU-of-TCP")
	b.Logf("%+v", lx.Stats())
}

// BenchmarkIdle says what a link costs that has nothing to carry: both ends of it.
func BenchmarkIdle(b *testing.B) {
	connect := veth(b)
	joined(b, fabrictest.StreamConfig{Conns: 1, Pipe: connect})
	time.Sleep(time.Second)
	var shares []float64
	for range b.N {
		cpu, begun := cpuTime(), time.Now()
		time.Sleep(3 * time.Second)
		shares = append(shares, 100*(cpuTime()-cpu).Seconds()/time.Since(begun).Seconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(shares), "%CPU")
}
