package directsockets_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/internal/netns/netnstest"
)

func TestUDP(t *testing.T) {
	for _, tt := range []struct{ network, at string }{{"udp4", "127.0.0.1:0"}, {"udp", "127.0.0.1:0"}, {"udp6", "[::1]:0"}, {"udp", "[::]:0"}} {
		t.Run(tt.network+tt.at, func(t *testing.T) {
			netnstest.CheckFDs(t)
			cfg := directsockets.Config{Broker: startBroker(t)}
			server := listenUDP(t, cfg, tt.network, tt.at)
			to := server.LocalAddr().(*net.UDPAddr)
			if to.IP.IsUnspecified() {
				to = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: to.Port}
			}
			echoUDP(t, server)
			c := dialUDP(t, directsockets.Config{Broker: dialBroker(t, brokerPath(t, cfg.Broker))}, to)
			makeFlows(t, c, server)
			for _, n := range []int{0, 1, 64, 112, 113, 1400, 9000, 65507} {
				before := c.Stats()
				ask(t, c, bytes.Repeat([]byte{byte(n)}, n))
				after := c.Stats()
				if after.SentDirect+after.SentShadow != before.SentDirect+before.SentShadow+1 {
					t.Errorf("%d bytes: %+v, then %+v", n, before, after)
				}
			}
			if c.Stats().Dropped+server.Stats().Dropped > 0 {
				t.Errorf("dropped: %+v, %+v", c.Stats(), server.Stats())
			}
		})
	}
}

// TestUDPOrder floods a receiver that takes some through memory and some by the kernel, as it
// sleeps now and then: nothing comes out of order, or twice, whatever is lost.
func TestUDPOrder(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	server := listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	const senders, each = 3, 30_000
	var wg sync.WaitGroup
	direct := make(chan uint64, senders)
	var conns [senders]*directsockets.UDPConn
	for i := range conns {
		c := dialUDP(t, cfg, server.LocalAddr())
		conns[i] = c
		before := server.Stats().ReceivedDirect
		for b := make([]byte, 8); server.Stats().ReceivedDirect < before+3; {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if n, _, err := server.ReadFrom(b); n != len(b) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	for i, c := range conns {
		wg.Go(func() {
			b := make([]byte, 300)
			for n := range each {
				binary.LittleEndian.PutUint64(b, uint64(i))
				binary.LittleEndian.PutUint64(b[8:], uint64(n))
				size := 16 + n%3*100
				if n%7 == 0 {
					size = 16
				}
				if _, err := c.Write(b[:size]); err != nil {
					t.Error(err)
					return
				}
				if n%1000 == 0 {
					time.Sleep(200 * time.Microsecond)
				}
			}
			direct <- c.Stats().SentDirect
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		for range 3 { // the last ones may be lost
			time.Sleep(10 * time.Millisecond)
		}
		close(done)
		_ = server.SetReadDeadline(time.Now())
	}()
	var last [senders]int64
	for i := range last {
		last[i] = -1
	}
	got, shadow := 0, 0
	for b := make([]byte, 300); ; {
		n, _, err := server.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil || n < 16 {
			t.Fatal(n, err)
		}
		from, number := binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
		if number <= last[from] {
			t.Fatalf("sender %d: %d after %d", from, number, last[from])
		}
		last[from] = number
		if got++; got%5000 == 0 {
			time.Sleep(time.Millisecond)
			shadow++
		}
	}
	<-done
	sum := uint64(0)
	for range senders {
		sum += <-direct
	}
	if sum == 0 {
		t.Error("nothing went through memory")
	}
	t.Logf("%d of %d came, %d through memory; %+v", got, senders*each, sum, server.Stats())
}

// TestUDPBoundaries has reads that are shorter than the datagram: the rest is gone, and
// ReadMsgUDP says so.
func TestUDPBoundaries(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	from := a.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, tt := range []struct{ size, read int }{{10, 4}, {300, 299}, {300, 0}, {5, 5}} {
		if _, err := a.WriteTo(make([]byte, tt.size), b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		n, _, flags, addr, err := b.ReadMsgUDPAddrPort(make([]byte, tt.read), nil)
		if err != nil || n != tt.read || addr != from || (flags&syscall.MSG_TRUNC != 0) != (tt.read < tt.size) {
			t.Errorf("%+v: %d, %#x, %v, %v", tt, n, flags, addr, err)
		}
	}
	before := b.Stats()
	for range 100 {
		_, _ = a.WriteTo([]byte("x"), b.LocalAddr())
		if n, _, err := b.ReadFromUDP(make([]byte, 2)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if b.Stats().ReceivedDirect == before.ReceivedDirect {
		t.Error("nothing went through memory")
	}
}

// readErrors returns the errors of each way to read.
func readErrors(c interface {
	net.PacketConn
	Read(b []byte) (int, error)
	ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
}, b []byte) (all [3]error) {
	_, _, all[0] = c.ReadFrom(b)
	_, all[1] = c.Read(b)
	_, _, _, _, all[2] = c.ReadMsgUDP(b, nil)
	return all
}

// TestUDPDeadlines has deadlines, and Close, end reads of a socket with flows.
func TestUDPDeadlines(t *testing.T) {
	netnstest.CheckFDs(t)
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	buf := make([]byte, 10)
	_ = b.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if _, _, err := b.ReadFrom(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_, _ = a.WriteTo([]byte("late"), b.LocalAddr())
	if _, _, err := b.ReadFrom(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = b.SetDeadline(time.Time{})
	if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	flowBetween(t, a, b) // again
	had := b.Stats().ReceivedDirect
	_ = b.SetReadDeadline(time.Now().Add(-time.Second))
	_, _ = a.WriteTo([]byte("memory"), b.LocalAddr())
	for i, err := range readErrors(b, buf) {
		if want := readErrors(b.UDPConn, buf)[i]; err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("read %d says %v, the kernel's %v", i, err, want)
		}
	}
	_ = b.SetDeadline(time.Time{})
	if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "memory" || b.Stats().ReceivedDirect != had+1 {
		t.Errorf("%q, %v, %d through memory", buf[:n], err, b.Stats().ReceivedDirect-had)
	}
	flowBetween(t, a, b)
	_ = a.SetWriteDeadline(time.Now().Add(-time.Second))
	if _, err := a.WriteTo([]byte("x"), b.LocalAddr()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	closed := make(chan error)
	go func() {
		_, _, err := b.ReadFrom(buf)
		closed <- err
	}()
	time.Sleep(time.Millisecond)
	b.Close()
	if err := <-closed; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, _, err := b.ReadFrom(buf); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestUDPRefused has a receiver close: its peer's datagrams are refused as by the kernel, and those
// to the next one at the port arrive.
func TestUDPRefused(t *testing.T) {
	netnstest.CheckFDs(t)
	cfg := directsockets.Config{Broker: startBroker(t)}
	server := listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	echoUDP(t, server)
	c := dialUDP(t, cfg, server.LocalAddr())
	makeFlows(t, c, server)
	at := server.LocalAddr().String()
	server.Close()
	eventually(t, "the kernel refuses a datagram", func() bool {
		_, err := c.Write([]byte("x"))
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		return err != nil
	})
	next := listenUDP(t, cfg, "udp4", at)
	echoUDP(t, next)
	eventually(t, "the next one answers", func() bool {
		if _, err := c.Write([]byte("x")); err != nil {
			return false
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := c.Read(make([]byte, 4))
		return err == nil
	})
	before := c.Stats().SentDirect
	// Without a pause: a receiver that sleeps gets its datagrams by the kernel.
	for end := time.Now().Add(testWait); c.Stats().SentDirect == before || next.Stats().ReceivedDirect == 0; {
		if time.Now().After(end) {
			t.Fatalf("datagrams to the next one do not go through memory: %+v, %+v", c.Stats(), next.Stats())
		}
		_, _ = c.Write([]byte("x"))
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = c.Read(make([]byte, 4))
	}
}

// TestUDPFile hands the descriptor out: everything goes by the kernel from then on, in order.
func TestUDPFile(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, sender := range []bool{true, false} {
		cfg := directsockets.Config{Broker: startBroker(t)}
		a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
		flowBetween(t, a, b)
		of := b
		if sender {
			of = a
		}
		f, err := of.File()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		before := b.Stats()
		for i := range 50 {
			text := fmt.Sprint(i)
			if _, err := a.WriteTo([]byte(text), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 10)
			if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != text {
				t.Fatalf("%q, %v", buf[:n], err)
			}
		}
		if after := b.Stats(); after.ReceivedDirect != before.ReceivedDirect {
			t.Errorf("%+v, then %+v", before, after)
		}
	}
}

// TestUDPPlainPeers has a plain client ask a server that has flows, and the other way round.
func TestUDPPlainPeers(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	server := listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	echoUDP(t, server)
	c := dialUDP(t, cfg, server.LocalAddr())
	makeFlows(t, c, server)
	plain := dialUDP(t, directsockets.Config{Off: true}, server.LocalAddr())
	for range 200 {
		ask(t, plain, []byte("plain"))
		ask(t, c, []byte("direct"))
	}
	if s := plain.Stats(); s.SentDirect > 0 {
		t.Errorf("%+v", s)
	}
}

// TestUDPManyReaders has goroutines read one socket at the same time: each datagram comes once.
func TestUDPManyReaders(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	a, b := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, a, b)
	const n = 2000
	got := make(chan int, n)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, 10)
			for {
				m, _, err := b.ReadFrom(buf)
				if err != nil {
					return
				}
				var i int
				if _, err := fmt.Sscan(string(buf[:m]), &i); err != nil {
					t.Error(err)
				}
				got <- i
			}
		})
	}
	seen := make(map[int]bool)
	for i := range n {
		if _, err := a.WriteTo(fmt.Append(nil, i), b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if j := <-got; seen[j] {
			t.Fatalf("%d comes twice", j)
		} else {
			seen[j] = true
		}
	}
	b.Close()
	wg.Wait()
}

// TestUDPControl has the control messages of a datagram be those of the kernel's.
func TestUDPControl(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	for _, network := range []string{"udp4", "udp6"} {
		at := map[string]string{"udp4": "0.0.0.0:0", "udp6": "[::]:0"}[network]
		to := map[string]string{"udp4": "127.0.0.1", "udp6": "::1"}[network]
		b := listenUDP(t, cfg, network, at)
		setControls(t, b, network == "udp6")
		dst := &net.UDPAddr{IP: net.ParseIP(to), Port: b.LocalAddr().(*net.UDPAddr).Port}
		a := dialUDP(t, cfg, dst)
		var oobs [2][]byte // by the kernel, and through memory
		for end := time.Now().Add(testWait); oobs[0] == nil || oobs[1] == nil; {
			before := b.Stats()
			if _, err := a.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			oob := make([]byte, 200)
			_, n, _, from, err := b.ReadMsgUDPAddrPort(make([]byte, 5), oob)
			if err != nil || from != a.LocalAddr().(*net.UDPAddr).AddrPort() {
				t.Fatal(from, err)
			}
			i := 0
			if b.Stats().ReceivedDirect > before.ReceivedDirect {
				i = 1
			}
			oobs[i] = oob[:n]
			if time.Now().After(end) {
				t.Fatal("not direct")
			}
		}
		if !bytes.Equal(oobs[0], oobs[1]) || len(oobs[0]) == 0 {
			t.Errorf("%s: by the kernel %x, through memory %x", network, oobs[0], oobs[1])
		}
	}
}

// TestUDPBurst sends bursts to a receiver that sleeps between them: the first datagram of each
// wakes it, the others are in memory by then, and all come in their order.
func TestUDPBurst(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	c, server := listenUDP(t, cfg, "udp4", "127.0.0.1:0"), listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	flowBetween(t, c, server)
	for b := make([]byte, 100); ; { // until it is known how many were lost
		_ = server.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, _, err := server.ReadFrom(b); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	_ = server.SetReadDeadline(time.Time{})
	const bursts, each = 50, 32
	type datagram struct {
		n   uint32
		err error
	}
	got := make(chan datagram, bursts*each)
	go func() {
		b := make([]byte, 2000)
		for range bursts * each {
			_, _, err := server.ReadFrom(b)
			got <- datagram{binary.LittleEndian.Uint32(b), err}
		}
	}()
	before, b := c.Stats(), make([]byte, 1200)
	for n := range uint32(bursts * each) {
		if n%each == 0 {
			time.Sleep(3 * time.Millisecond) // it sleeps, most times
		}
		binary.LittleEndian.PutUint32(b, n)
		if _, err := c.WriteTo(b, server.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if n%each == each-1 {
			for want := n - each + 1; want <= n; want++ {
				if d := <-got; d.err != nil || d.n != want {
					t.Fatalf("%d, %v: want %d", d.n, d.err, want)
				}
			}
		}
	}
	after := c.Stats()
	direct, shadow := after.SentDirect-before.SentDirect, after.SentShadow-before.SentShadow
	t.Logf("%d through memory, %d by the kernel", direct, shadow)
	if direct == 0 { // how many is a matter of how busy the machine is
		t.Error("none was in memory")
	}
}
