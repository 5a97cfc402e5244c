package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// Where the two ends say that they publish, and what they have given back (SPEC 10.1).
const (
	busyAt     = 512 + 64
	consumedAt = 1024
)

// ends makes a flow between two addresses: the sender's end of an offer to a receiver, and what
// that is granted.
func ends(t *testing.T, from, to netip.AddrPort) (tx *datagram.Tx, g client.Granted) {
	t.Helper()
	info := datagram.Info{Nonce: datagram.NewNonce(), From: from, To: to}
	seg, err := datagram.Create(info, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	seg.CloseFd()
	tx = datagram.NewTx(seg, pair[0], 0, new(datagram.KernelSends))
	t.Cleanup(tx.Close)
	g = client.Granted{Nonce: info.Nonce, Segment: fd, Bell: pair[1]}
	g.Key.Client, g.Key.Server = from, to
	return tx, g
}

// flow makes both ends of a flow here, until the test's end.
func flow(t *testing.T) (*datagram.Segment, *datagram.Tx, *datagram.Rx) {
	t.Helper()
	seg, err := datagram.Create(datagram.Info{From: netip.MustParseAddrPort("127.0.0.1:1"), To: netip.MustParseAddrPort("127.0.0.1:2")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := datagram.Map(seg.Fd())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tx, rx := datagram.NewTx(seg, pair[0], 0, new(datagram.KernelSends)), datagram.NewRx(peer, pair[1], 0)
	t.Cleanup(func() { rx.Close(); tx.Close() })
	return seg, tx, rx
}

func listen(t *testing.T) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, plainAddr(c.LocalAddr().(*net.UDPAddr).AddrPort())
}

// receiver makes the Socket of a new UDP socket.
func receiver(t *testing.T) (*Socket, netip.AddrPort) {
	t.Helper()
	c, at := listen(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Raw: raw, Local: at, Broker: new(client.Client),
		Send:    func(netip.AddrPort) (connstats.Why, bool) { return connstats.WhyRule, false },
		Receive: func(netip.AddrPort) bool { return false },
	})
	t.Cleanup(s.Close)
	return s, at
}

// awake has the receiver of a flow look at it.
func (s *Socket) awake(f *inflow) {
	f.rx.Dry(1)
	f.rx.Disarm()
	f.on(&s.in, inWake)
	s.in.nonEmpty.Store(true)
}

// TestOfferedAgain has a sender offer a second flow, as one does whose program has changed an
// option, while its receiver has not read what is in the first one.
func TestOfferedAgain(t *testing.T) {
	s, at := receiver(t)
	_, from := listen(t)
	const n = 5
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	if len(s.in.flows) != 1 {
		t.Fatal("the flow has not begun")
	}
	s.awake(s.in.flows[0])
	for i := range n {
		if out := tx.Send([]byte{byte(i)}, datagram.Meta{}); out != datagram.Published {
			t.Fatalf("%d: %v", i, out)
		}
	}
	tx.Close()
	_, g = ends(t, from, at)
	s.in.beginFlow(g)
	b := make([]byte, 10)
	for i := range n {
		d, ok := s.Receive(b)
		if !ok || d.N != 1 || b[0] != byte(i) || d.From != from {
			t.Fatalf("%d: %v, %+v %v", i, ok, d, b)
		}
	}
	if len(s.in.flows) != 1 {
		t.Errorf("%d flows", len(s.in.flows))
	}
}

// TestBusyAgain has a sender publish for long whenever its receiver is about to sleep: what it
// has published before is received.
func TestBusyAgain(t *testing.T) {
	s, at := receiver(t)
	_, from := listen(t)
	tx, g := ends(t, from, at)
	mem, err := unix.FcntlInt(uintptr(g.Segment), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mem)
	s.in.beginFlow(g)
	f := s.in.flows[0]
	s.awake(f)
	if out := tx.Send([]byte("x"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	if _, err := unix.Pwrite(mem, []byte{1}, busyAt); err != nil {
		t.Fatal(err)
	}
	for range mostLate + 1 {
		s.in.mu.Lock()
		s.in.armFlows()
		for _, f := range s.in.flows {
			f.useMemory(&s.in)
		}
		s.in.mu.Unlock()
	}
	if !f.rx.Ended() {
		t.Fatal("it is waited for again and again")
	}
	if d, ok := s.Receive(make([]byte, 10)); !ok || d.N != 1 {
		t.Error("what was in memory is lost")
	}
}

// receiverOfOne returns a receiver with a flow, whose sender has put one datagram into memory.
func receiverOfOne(t *testing.T) (s *Socket, tx *datagram.Tx) {
	t.Helper()
	s, at := receiver(t)
	_, from := listen(t)
	tx, g := ends(t, from, at)
	s.in.beginFlow(g)
	s.awake(s.in.flows[0])
	if out := tx.Send([]byte("x"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	return s, tx
}

// TestLeft has a socket be the kernel's alone when it has left, and all that was in memory is
// received.
func TestLeft(t *testing.T) {
	s, _ := receiverOfOne(t)
	if s.Left() || s.Plain() {
		t.Fatal("it has not left")
	}
	s.Leave()
	if !s.Left() || s.Plain() {
		t.Fatalf("left %v, plain %v with a datagram in memory", s.Left(), s.Plain())
	}
	b := make([]byte, 10)
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("it is lost")
	}
	if !s.Plain() {
		t.Error("it is not the kernel's")
	}
	empty, _ := receiver(t)
	if empty.Leave(); !empty.Plain() {
		t.Error("nor is one that has had no flow")
	}
}

// TestLeftInOrder has a socket leave with datagrams of two senders in memory: they come as they
// were sent.
func TestLeftInOrder(t *testing.T) {
	s, at := receiver(t)
	var tx [2]*datagram.Tx
	for i := range tx {
		_, from := listen(t)
		var g client.Granted
		tx[i], g = ends(t, from, at)
		s.in.beginFlow(g)
		s.awake(s.in.flows[i])
	}
	const n = 8
	for i := range n {
		if out := tx[i*i%3%2].Send([]byte{byte(i)}, datagram.Meta{}); out != datagram.Published {
			t.Fatal(out)
		}
	}
	s.Leave()
	b := make([]byte, 10)
	for i := range n {
		if d, ok := s.Receive(b); !ok || d.N != 1 || int(b[0]) != i {
			t.Fatalf("%v, %d in place of %d", ok, b[0], i)
		}
	}
}

// TestKeepsErrors has a receiver look at what the kernel has while that has an error for its
// program.
func TestKeepsErrors(t *testing.T) {
	gone, to := listen(t)
	gone.Close()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var fd int
	_ = raw.Control(func(d uintptr) { fd = int(d) })
	p := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(p, 10000); n != 1 || p[0].Revents&unix.POLLERR == 0 {
		t.Fatalf("%d, %v: the kernel knows of no error", n, err)
	}
	in := &inbound{s: &Socket{cfg: Config{Raw: raw}}}
	if _, ok, failed := in.fromKernel(make([]byte, 10)); ok || !failed {
		t.Error("there is a datagram, or no error")
	}
	if in.kernelReadable() {
		t.Error("there is something to receive")
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || unix.Errno(v) != unix.ECONNREFUSED {
		t.Errorf("error %d, %v", v, err)
	}
}

// TestTrickle has a receiver with a full ring take very little each time that its sender looks:
// it keeps that no longer than one that takes nothing.
func TestTrickle(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the receiver takes when the sender yields
	seg, tx, rx := flow(t)
	rx.Dry(1)
	rx.Disarm()
	f := &outflow{phase: outUp, tx: tx, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	f.count = (*segment.Counters)(f.entry.Counters())
	for f.tx.Send(make([]byte, 40), datagram.Meta{}) == datagram.Published {
	}
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(64); !done.Load(); n += 64 {
			if _, err := unix.Pwrite(seg.Fd(), binary.LittleEndian.AppendUint64(nil, n), consumedAt); err != nil {
				t.Error(err)
			}
			for range 8 {
				runtime.Gosched()
			}
		}
	}()
	s := new(Socket)
	f.mu.Lock()
	start := shm.Nanotime()
	if !f.sendDirect(make([]byte, datagram.MaxLen), datagram.Meta{}, s) {
		t.Error("it is for the kernel")
	}
	took := time.Duration(shm.Nanotime() - start)
	f.mu.Unlock()
	done.Store(true)
	<-ended
	if st := s.Stats(); st.Dropped != 1 {
		t.Errorf("the sender has waited for %v, and then sent it: %+v", took, st)
	}
}
