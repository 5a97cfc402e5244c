package tun_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
	"exnet/node/tun"
)

// reader waits for packets in the runtime's poller.
type reader struct {
	raw  syscall.RawConn
	d    *tun.Device
	buf  []byte
	n    int
	err  error
	call func(uintptr) bool // made once: no allocation per packet
}

func newReader(d *tun.Device) (*reader, error) {
	raw, err := d.SyscallConn()
	r := &reader{raw: raw, d: d}
	r.call = func(uintptr) bool {
		r.n, r.err = r.d.Read(r.buf)
		return r.err != tun.ErrAgain
	}
	return r, err
}

func (r *reader) read(buf []byte) (int, error) {
	r.buf = buf
	if err := r.raw.Read(r.call); err != nil {
		return 0, err
	}
	return r.n, r.err
}

// poller waits by poll(2), as one does with Config.OwnPoller.
type poller struct {
	d    *tun.Device
	stop *os.File // readable: stop
}

func (p *poller) read(buf []byte) (int, error) {
	for {
		n, err := p.d.Read(buf)
		if err != tun.ErrAgain {
			return n, err
		}
		fds := []unix.PollFd{{Fd: int32(p.d.Fd()), Events: unix.POLLIN}, {Fd: int32(p.stop.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return 0, err
		}
		if fds[1].Revents != 0 {
			return 0, io.EOF
		}
	}
}

// relayStats counts what passed with which header.
type relayStats struct {
	packets, segments, longest atomic.Int64
}

// relay passes packets on with their headers as they are, until read fails.
func relay(read func([]byte) (int, error), to *tun.Device, stats *relayStats) error {
	buf := make([]byte, tun.BufferLen)
	for {
		n, err := read(buf)
		if err != nil {
			return err
		}
		hdr, packet := buf[:tun.VnetHdrLen], buf[tun.VnetHdrLen:n]
		stats.packets.Add(1)
		stats.longest.Store(max(stats.longest.Load(), int64(len(packet))))
		if hdr[1] != unix.VIRTIO_NET_HDR_GSO_NONE {
			stats.segments.Add(1)
		}
		if err := to.Write(hdr, foreign.Private(packet)); err != nil {
			return err
		}
	}
}

// pair is two namespaces with a device each, and the loop between them.
type pair struct {
	ns    [2]*netns.NS
	stats [2]relayStats
}

func newPair(t testing.TB, mtu int, ownPoller bool) *pair {
	t.Helper()
	p := &pair{ns: [2]*netns.NS{netnstest.New(t), netnstest.New(t)}}
	var devs [2]*tun.Device
	for i, n := range p.ns {
		devs[i] = openIn(t, n, tun.Config{MTU: mtu, OwnPoller: ownPoller})
		v4, v6 := [...]string{"10.2.0.1/24", "10.2.0.2/24"}[i], [...]string{"fd00:2::1/64", "fd00:2::2/64"}[i]
		configure(t, n, devs[i], v4, v6, [...]string{"fe80::1/64", "fe80::2/64"}[i])
	}
	stopR, stopW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range devs {
		var read func([]byte) (int, error)
		if ownPoller {
			read = (&poller{devs[i], stopR}).read
		} else {
			r, err := newReader(devs[i])
			if err != nil {
				t.Fatal(err)
			}
			read = r.read
		}
		wg.Go(func() {
			if err := relay(read, devs[1-i], &p.stats[i]); !errors.Is(err, io.EOF) && !errors.Is(err, tun.ErrClosed) && t.Context().Err() == nil {
				t.Errorf("relay from %d: %v", i, err)
			}
		})
	}
	t.Cleanup(func() {
		stopW.Close()
		for _, d := range devs {
			d.Close() // wakes who waits in the runtime's poller
		}
		wg.Wait()
		stopR.Close()
	})
	return p
}

// connect makes a TCP connection from the first namespace to the second. Both
// ends use cubic where that can be had, so that figures can be compared.
func connect(t testing.TB, ns [2]*netns.NS, addr string) (from, to net.Conn) {
	t.Helper()
	control := func(network, address string, c syscall.RawConn) error {
		if err := hostnet.ControlCongestion("cubic")(network, address, c); !errors.Is(err, hostnet.ErrCongestion) {
			return err
		}
		return nil
	}
	var ln net.Listener
	lc := net.ListenConfig{Control: control}
	if err := ns[1].Do(func() (err error) {
		ln, err = lc.Listen(t.Context(), "tcp", net.JoinHostPort(addr, "0"))
		return
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{Control: control, Timeout: 30 * time.Second}
	if err := ns[0].Do(func() (err error) {
		from, err = d.DialContext(t.Context(), "tcp", ln.Addr().String())
		return
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	to, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return from, to
}

// transfer sends data from the first namespace to the second over TCP and
// returns what arrived.
func (p *pair) transfer(t testing.TB, addr string, data []byte) []byte {
	t.Helper()
	from, to := connect(t, p.ns, addr)
	if err := to.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = from.Write(data) // what is missing is seen at the other end
		from.Close()
	}()
	got, err := io.ReadAll(to)
	if err != nil {
		t.Error(err)
	}
	return got
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
	}
	return b
}

// Programs on both sides work across a loop that only passes packets and their
// headers on, for both kinds of waiting and an MTU that makes the kernel leave
// segmentation to the device.
func TestRootRelay(t *testing.T) {
	for _, tt := range []struct {
		name      string
		mtu       int
		ownPoller bool
	}{
		{"mtu=65535", 65535, false},
		{"mtu=1500", 1500, false},
		{"mtu=1500,own poller", 1500, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netnstest.CheckFDs(t)
			p := newPair(t, tt.mtu, tt.ownPoller)
			output(t, p.ns[0], "ping", "-c2", "-i0.05", "-W5", "10.2.0.2")
			output(t, p.ns[1], "ping", "-c2", "-i0.05", "-W5", "fd00:2::1")
			output(t, p.ns[0], "ping", "-c1", "-W5", "fe80::2%exn0")
			output(t, p.ns[0], "ping", "-c1", "-W5", "-M", "do", "-s", "1472", "10.2.0.2")

			data := randomBytes(1 << 20)
			for _, addr := range []string{"10.2.0.2", "fd00:2::2"} {
				if got := p.transfer(t, addr, data); !bytes.Equal(got, data) {
					t.Errorf("%s: %d bytes arrived, not the %d sent", addr, len(got), len(data))
				}
			}
			if p.stats[0].longest.Load() <= 9000 {
				t.Errorf("longest packet %d: nothing was left to segment", p.stats[0].longest.Load())
			}
			if tt.mtu == 1500 && p.stats[0].segments.Load() == 0 {
				t.Error("no packet with a segmentation size")
			}
			t.Logf("%d packets, %d with a segmentation size, longest %d", p.stats[0].packets.Load(), p.stats[0].segments.Load(), p.stats[0].longest.Load())
		})
	}
}

// A UDP message sent with UDP_SEGMENT passes whole where the kernel offers that.
func TestRootRelayUSO(t *testing.T) {
	netnstest.CheckFDs(t)
	p := newPair(t, 1500, false)
	var from, to *net.UDPConn
	if err := p.ns[1].Do(func() (err error) {
		to, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 2, 0, 2)})
		return
	}); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := p.ns[0].Do(func() (err error) {
		from, err = net.DialUDP("udp", nil, to.LocalAddr().(*net.UDPAddr))
		return
	}); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	const size, count = 1000, 20
	raw, err := from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("UDP_SEGMENT:", err)
	}
	data := randomBytes(size * count)
	if _, err := from.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for buf := make([]byte, 2*size); len(got) < len(data); {
		n, err := to.Read(buf)
		if err != nil || n != size {
			t.Fatalf("message of %d bytes, %v", n, err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes arrived")
	}
	t.Logf("%d packets for %d messages", p.stats[0].packets.Load(), count)
}
