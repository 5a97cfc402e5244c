package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/internal/longtest"
)

// sockets returns the two ends of a connected socket.
func sockets(tb testing.TB) (ends [2]*net.UnixConn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			tb.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		tb.Cleanup(func() { _ = ends[i].Close() }) // a link may have done it
	}
	return ends
}

// over returns a medium over a socket, with faults in both directions.
func over(tb testing.TB, f wire.Faults) (a, b *wire.Conn) {
	tb.Helper()
	ends := sockets(tb)
	other := make(chan error)
	go func() {
		var err error
		b, err = wire.Over(ends[1], f)
		other <- err
	}()
	a, err := wire.Over(ends[0], f)
	if err := errors.Join(err, <-other); err != nil {
		tb.Fatal(err)
	}
	return a, b
}

// media returns the two ends of a medium, with faults in both directions.
type media func(tb testing.TB, f wire.Faults) (a, b wire.Medium)

func overSocket(tb testing.TB, f wire.Faults) (a, b wire.Medium) { return over(tb, f) }

func connKind(name string, over media, f wire.Faults) fabrictest.Link {
	return fabrictest.Link{Name: name, New: func(tb testing.TB, n int) []*nic.NIC {
		nics := make([]*nic.NIC, n)
		cfg := wire.Config{DownAfter: 2 * time.Minute}
		for i := range nics {
			nics[i] = fabrictest.NewNIC(tb, fabric.NodeID(i))
			for j := range i {
				a, b := over(tb, f)
				for _, end := range []struct {
					n  *nic.NIC
					to int
					m  wire.Medium
				}{{nics[i], j, a}, {nics[j], i, b}} {
					l, err := wire.Connect(end.n, fabric.NodeID(end.to), end.m, cfg)
					if err != nil {
						tb.Fatal(err)
					}
					if l.Peer() != fabric.NodeID(end.to) {
						tb.Errorf("peer %d, want %d", l.Peer(), end.to)
					}
					tb.Cleanup(func() { _ = l.Close(); <-l.Done() })
				}
			}
		}
		return nics
	}}
}

// A socket is a medium as good as another: what does not fit into its buffer is
// lost, and made up for.
func TestConnSuite(t *testing.T) {
	longtest.Skip(t)
	for _, l := range []fabrictest.Link{connKind("good", overSocket, wire.Faults{}), connKind("bad", overSocket, bad)} {
		t.Run(l.Name, func(t *testing.T) { fabrictest.Suite(t, l) })
	}
}

// Nobody waits for a peer that does not read: packets are lost, and those that are not
// come whole and in order.
func TestConnFull(t *testing.T) {
	a, b := over(t, wire.Faults{})
	defer b.Close()
	const packets = 5000
	sent := time.Now()
	for i := range packets {
		if err := a.Send(bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 250)); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(sent); d > 30*time.Second {
		t.Errorf("sending took %v", d)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	came, last, buf := 0, -1, make([]byte, wire.MaxPacket)
	for {
		n, err := b.Receive(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || n != 500 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if now := int(buf[0]) | int(buf[1])<<8; now <= last {
			t.Errorf("packet %d after %d", now, last)
		} else {
			last = now
		}
		came++
	}
	if came < 10 || came == packets {
		t.Errorf("%d packets of %d came", came, packets)
	}
	if err := b.Send([]byte("x")); err == nil {
		t.Error("sent to an end that is closed")
	}
	if err := b.SetFaults(wire.Faults{Drop: 2}); !errors.Is(err, wire.ErrFaults) {
		t.Error(err)
	}
}

// Packets that damage leaves nothing of are lost, and do not end the medium.
func TestConnEmpty(t *testing.T) {
	a, b := over(t, wire.Faults{Corrupt: 1, Seed: 3})
	defer b.Close()
	const packets = 64
	for range packets {
		if err := a.Send([]byte{1}); err != nil { // an eighth is cut to nothing
			t.Fatal(err)
		}
	}
	a.Close()
	came, buf := 0, make([]byte, 8)
	for {
		if _, err := b.Receive(buf); err != nil {
			break
		}
		came++
	}
	if came == 0 || came == packets {
		t.Errorf("%d packets of %d came", came, packets)
	}
}

// Two ends of different kinds find out, and say so in one line.
func TestConnOtherKind(t *testing.T) {
	for name, c := range map[string]struct {
		other func(*net.UnixConn) error
		want  error
	}{
		"shm": {func(c *net.UnixConn) error {
			l, err := shm.Connect(fabrictest.NewNIC(t, 2), c, shm.Config{HelloTimeout: time.Second})
			if err == nil {
				t.Error("shm took a wire's hello", l.Close())
			}
			t.Log(err)
			if !errors.Is(err, shm.ErrHello) {
				t.Error(err)
			}
			return nil
		}, wire.ErrHello},
		"version": {func(c *net.UnixConn) error { _, err := c.Write([]byte("EXNW\x01\x00\x00\x00")); return err }, wire.ErrVersion},
		"short":   {func(c *net.UnixConn) error { _, err := c.Write([]byte("EXNW\x02\x00\x00")); return err }, wire.ErrHello},
		"gone":    {func(c *net.UnixConn) error { return c.Close() }, nil},
		"silent":  {func(c *net.UnixConn) error { return nil }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := sockets(t)
			done := make(chan error)
			go func() { done <- c.other(ends[1]) }()
			m, err := wire.Over(ends[0], wire.Faults{})
			if m != nil || err == nil || c.want != nil && !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, %v", m, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := ends[0].SetDeadline(time.Time{}); err == nil {
				t.Error("the socket is open")
			}
		})
	}
	if m, err := wire.Over(sockets(t)[0], wire.Faults{Delay: -1}); m != nil || !errors.Is(err, wire.ErrFaults) {
		t.Errorf("%v, %v", m, err)
	}
}

// No counter is left out of a sum.
func TestStatsPlus(t *testing.T) {
	var one wire.Stats
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(uint64(i + 1))
	}
	i := uint64(0)
	for name, sum := range one.Plus(one).All() {
		if i++; sum != 2*i {
			t.Errorf("%s: %d, want %d", name, sum, 2*i)
		}
	}
}

// A delay alone changes no order.
func TestDelayKeepsOrder(t *testing.T) {
	a, b, err := wire.Pipe(wire.Faults{Delay: time.Millisecond}, wire.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	const packets = 200 // which the queue has room for
	began := time.Now()
	for i := range packets {
		if err := a.Send([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	p := make([]byte, 8)
	for i := range packets {
		if n, err := b.Receive(p); n != 1 || err != nil || p[0] != byte(i) {
			t.Fatalf("packet %d: % x, %v", i, p[:n], err)
		}
	}
	if d := time.Since(began); d < time.Millisecond {
		t.Errorf("they took %v", d)
	}
}
