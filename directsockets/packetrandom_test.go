package directsockets_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

// udpReaderEnv says how many datagrams this test binary shall receive as another process.
const udpReaderEnv = "EXNET_UDP_READER"

// runUDPReader receives from descriptor 3, and writes what it gets.
func runUDPReader(n string) error {
	c, err := net.FilePacketConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	many, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for range many {
		k, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		fmt.Printf("%v %x\n", from, buf[:k])
	}
	return nil
}

// How a program takes over a sender of another socket: it binds the same port, and connects.
func shareable(_, _ string, raw syscall.RawConn) (err error) {
	if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil {
		return e
	}
	return err
}

// randomUDP makes random calls on UDP sockets of one kind, and holds what they do against a
// model of the kernel's.
type randomUDP struct {
	t       *testing.T
	r       *rand.Rand
	cfg     *directsockets.Config // nil: package net's own sockets
	all     []*randomSocket
	direct  uint64 // datagrams through memory, of sockets that are closed
	history []string
}

// randomSocket is a socket, and what it has to receive.
type randomSocket struct {
	id     int
	conn   net.PacketConn
	at     *net.UDPAddr
	peer   *randomSocket // it is connected to this one's address
	shared bool          // others may bind to its port
	copies []net.PacketConn
	left   map[*randomSocket][][]byte // by sender, in order
	first  map[*randomSocket]int      // by sender: of these the first descriptor alone has so many
	sent   uint32
	many   int                    // goroutines receive there at once
	flows  map[*randomSocket]bool // to these it has sent for long enough
}

func (u *randomUDP) fatalf(format string, args ...any) {
	u.t.Helper()
	var ports []string
	for _, s := range u.all {
		ports = append(ports, fmt.Sprintf("%d: %d (%d copies)", s.id, s.at.Port, len(s.copies)))
	}
	last := u.history[max(len(u.history)-30, 0):]
	u.t.Fatalf("%s\nports %v, after\n%s", fmt.Sprintf(format, args...), ports, strings.Join(last, "\n"))
}

func (u *randomUDP) note(format string, args ...any) {
	u.history = append(u.history, fmt.Sprintf(format, args...))
}

// ownLoopback is an address that no other process uses: the kernel may give a socket with
// SO_REUSEPORT the port of another program's, and some of its datagrams to that one.
func ownLoopback() netip.Addr {
	pid := uint32(os.Getpid())
	return netip.AddrFrom4([4]byte{127, byte(1 + pid>>16), byte(pid >> 8), byte(pid)})
}

// add makes a socket: at a port of its own, or at that of one whose sender peer it takes over.
func (u *randomUDP) add(port int, peer *randomSocket) *randomSocket {
	shared := port != 0 || u.r.IntN(3) == 0
	var control func(string, string, syscall.RawConn) error
	if shared {
		control = shareable
	}
	at := fmt.Sprintf("%v:%d", ownLoopback(), port)
	var c any
	var err error
	switch listen, dial := (net.ListenConfig{Control: control}), (net.Dialer{Control: control}); {
	case peer != nil:
		dial.LocalAddr, err = net.ResolveUDPAddr("udp4", at)
		if err != nil {
			u.t.Fatal(err)
		}
		if u.cfg == nil {
			c, err = dial.Dial("udp4", peer.at.String())
		} else {
			c, err = (&directsockets.Dialer{Dialer: dial, Config: *u.cfg}).Dial("udp4", peer.at.String())
		}
	case u.cfg == nil:
		c, err = listen.ListenPacket(context.Background(), "udp4", at)
	default:
		c, err = (&directsockets.ListenConfig{ListenConfig: listen, Config: *u.cfg}).ListenPacket(context.Background(), "udp4", at)
	}
	if err != nil {
		u.fatalf("socket: %v", err)
	}
	s := &randomSocket{id: len(u.history), conn: c.(net.PacketConn), peer: peer, shared: shared, left: map[*randomSocket][][]byte{}, first: map[*randomSocket]int{}, flows: map[*randomSocket]bool{}}
	s.many = max(1, u.r.IntN(5)-1) // one in three of five cases: then it may be rung
	s.at = s.conn.LocalAddr().(*net.UDPAddr)
	if shared && port == 0 && u.taken(s.at.Port) { // the kernel takes a port of the group's, too
		defer s.conn.Close()
		return u.add(port, peer)
	}
	u.all = append(u.all, s)
	u.note("socket %d at port %d", s.id, s.at.Port)
	return s
}

// taken reports whether a socket has a port.
func (u *randomUDP) taken(port int) bool {
	return slices.ContainsFunc(u.all, func(s *randomSocket) bool { return s.at.Port == port })
}

// receiver is the socket that the kernel gives a datagram; nil: none.
func (u *randomUDP) receiver(from *randomSocket, port int) (found *randomSocket) {
	for _, s := range u.all {
		if s.at.Port == port && s.peer != nil && s.peer.at.Port == from.at.Port {
			return s
		}
		if s.at.Port == port && s.peer == nil {
			found = s
		}
	}
	return found
}

// target is a socket that s can send to, and the one that gets it; nil: there is none.
func (u *randomUDP) target(s *randomSocket) (at *net.UDPAddr, to *randomSocket) {
	at = u.all[u.r.IntN(len(u.all))].at
	if s.peer != nil {
		at = s.peer.at
	}
	return at, u.receiver(s, at.Port)
}

// next makes the bytes of a datagram.
func (s *randomSocket) next(r *rand.Rand) []byte {
	s.sent++
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(s.id)), s.sent)
	return append(b, bytes.Repeat([]byte{byte(s.sent)}, r.IntN(200))...)
}

func (s *randomSocket) write(at *net.UDPAddr, b []byte) error {
	if s.peer != nil {
		_, err := s.conn.(net.Conn).Write(b)
		return err
	}
	_, err := s.conn.WriteTo(b, at)
	return err
}

func (u *randomUDP) send() {
	s := u.all[u.r.IntN(len(u.all))]
	at, to := u.target(s)
	if to == nil || to.waiting() > 40 {
		return
	}
	n := 1 + u.r.IntN(8)
	u.note("%d sends %d to %d", s.id, n, to.id)
	for range n {
		b := s.next(u.r)
		if err := s.write(at, b); err != nil {
			u.fatalf("send: %v", err)
		}
		to.left[s] = append(to.left[s], b)
	}
}

// waiting is how many datagrams s has to receive.
func (s *randomSocket) waiting() (n int) {
	for _, q := range s.left {
		n += len(q)
	}
	return n
}

// got takes a datagram off what s has to receive.
func (s *randomSocket) got(from net.Addr, b []byte, ordered bool) error {
	for sender, q := range s.left {
		for i, want := range q {
			if bytes.Equal(want, b) && (i == 0 || !ordered) && from.String() == sender.at.String() {
				s.left[sender] = append(q[:i:i], q[i+1:]...)
				s.first[sender] = max(s.first[sender]-1, 0)
				return nil
			}
		}
	}
	var next []string
	for sender, q := range s.left {
		for _, b := range q {
			next = append(next, fmt.Sprintf("%d/%d", sender.id, binary.BigEndian.Uint32(b[4:])))
		}
	}
	return fmt.Errorf("socket %d: %d/%d from %v is not what comes next: %v", s.id,
		binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), from, next)
}

// receive takes n datagrams.
func (u *randomUDP) receive(s *randomSocket, n int) {
	u.note("%d receives %d of %d", s.id, n, s.waiting())
	buf := make([]byte, 1000)
	for range n {
		c := s.conn
		if k := u.r.IntN(len(s.copies) + 1); k > 0 && s.shareAll() {
			c = s.copies[k-1]
		}
		_ = c.SetReadDeadline(time.Now().Add(testWait))
		k, from, err := c.ReadFrom(buf)
		if err != nil {
			u.fatalf("socket %d: %v, and %d are to come", s.id, err, s.waiting())
		}
		if err := s.got(from, buf[:k], true); err != nil {
			u.fatalf("%v", err)
		}
	}
}

// shareAll reports whether each copy has all that s has to receive.
func (s *randomSocket) shareAll() bool {
	for _, n := range s.first {
		if n > 0 {
			return false
		}
	}
	return true
}

// drain takes all, and looks for more.
func (u *randomUDP) drain(s *randomSocket) {
	u.receive(s, s.waiting())
	_ = s.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	buf := make([]byte, 1000)
	if n, from, err := s.conn.ReadFrom(buf); err == nil {
		u.fatalf("socket %d: %x from %v comes, and nothing is to come", s.id, buf[:n], from)
	}
}

// pester has the read deadline of a socket pass, and sets it again, until end is called.
func (u *randomUDP) pester(s *randomSocket) (end func()) {
	r := rand.New(rand.NewPCG(u.r.Uint64(), 8))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			_ = s.conn.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(400)-100) * time.Microsecond))
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(300)) * time.Microsecond):
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
	}
}

// together has goroutines receive on one socket, which sleep there, while others send to it, and
// its deadline passes, or does not.
func (u *randomUDP) together(to *randomSocket) {
	u.drain(to)
	type sender struct {
		s  *randomSocket
		at *net.UDPAddr
		of [][]byte
	}
	var senders []sender
	n := 0
	for _, s := range u.all {
		if len(senders) == 3 || u.receiver(s, to.at.Port) != to || s.peer != nil && s.peer.at.Port != to.at.Port {
			continue
		}
		w := sender{s: s, at: to.at}
		for range 1 + u.r.IntN(10) {
			w.of = append(w.of, s.next(u.r))
		}
		to.left[s] = append(to.left[s], w.of...)
		n += len(w.of)
		senders = append(senders, w)
	}
	readers := to.many
	u.note("%d goroutines receive %d on %d, %d send", readers, n, to.id, len(senders))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var tickets atomic.Int32
	failed := make(chan error, readers+len(senders))
	late := time.Now().Add(testWait)
	_ = to.conn.SetReadDeadline(late)
	end := func() {}
	if u.r.IntN(2) == 0 {
		u.note("its deadline passes")
		end = u.pester(to)
	}
	for range readers {
		wg.Go(func() {
			buf := make([]byte, 1000)
			for int(tickets.Add(1)) <= n {
				k, from, err := to.conn.ReadFrom(buf)
				for errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(late) {
					k, from, err = to.conn.ReadFrom(buf)
				}
				if err == nil {
					mu.Lock()
					err = to.got(from, buf[:k], readers == 1)
					mu.Unlock()
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	if u.r.IntN(2) == 0 {
		time.Sleep(time.Duration(u.r.IntN(2000)) * time.Microsecond) // they sleep
	}
	for _, w := range senders {
		wg.Go(func() {
			for _, b := range w.of {
				if err := w.s.write(w.at, b); err != nil {
					failed <- err
				}
			}
		})
	}
	wg.Wait()
	end()
	select {
	case err := <-failed:
		u.fatalf("%v", err)
	default:
	}
}

// disturb has something happen to a socket that a crowd uses.
func (u *randomUDP) disturb() {
	s := u.all[u.r.IntN(len(u.all))]
	switch u.r.IntN(80) {
	case 0:
		if len(s.copies) < 2 {
			u.copy(s)
		}
	case 1, 2:
		raw, err := s.conn.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(uintptr) {}) // which may have changed an option
		}
		if err != nil {
			u.fatalf("control: %v", err)
		}
		u.note("an option of %d may have changed", s.id)
	case 3:
		u.note("a process starts")
		if err := exec.Command("true").Run(); err != nil {
			u.fatalf("start: %v", err)
		}
	}
}

// takeOver has a new socket take a sender of s over.
func (u *randomUDP) takeOver(s *randomSocket) {
	peer := u.all[u.r.IntN(len(u.all))]
	if !s.shared || s.peer != nil || peer.at.Port == s.at.Port || len(u.all) > 8 {
		return
	}
	if had := u.receiver(peer, s.at.Port); had != s {
		return
	}
	u.note("a sender, %d, of %d is taken over", peer.id, s.id)
	u.add(s.at.Port, peer)
	u.settle()
}

// settle waits until the ends of flows have asked the kernel again who has an address: SPEC
// 10.4.
func (u *randomUDP) settle() {
	if u.cfg != nil {
		time.Sleep(120 * time.Millisecond)
	}
}

// closeUnder has goroutines receive on a socket, where nothing comes, and closes it: they hear of
// that.
func (u *randomUDP) closeUnder(s *randomSocket) {
	u.drain(s)
	_ = s.conn.SetReadDeadline(time.Time{})
	var ended []chan error
	for range s.many {
		err := make(chan error, 1)
		ended = append(ended, err)
		go func() {
			_, _, e := s.conn.ReadFrom(make([]byte, 1000))
			err <- e
		}()
	}
	time.Sleep(time.Duration(u.r.IntN(2000)) * time.Microsecond) // they sleep
	u.close(s)
	for _, err := range ended {
		select {
		case e := <-err:
			if !errors.Is(e, net.ErrClosed) {
				u.fatalf("socket %d is closed under a receive, which says %v", s.id, e)
			}
		case <-time.After(testWait):
			u.fatalf("socket %d is closed, and a receive goes on", s.id)
		}
	}
}

func (u *randomUDP) close(s *randomSocket) {
	u.note("%d is closed", s.id)
	if c, ok := s.conn.(*directsockets.UDPConn); ok {
		u.direct += c.Stats().SentDirect
	}
	s.conn.Close()
	for _, c := range s.copies {
		c.Close()
	}
	for i, at := range u.all {
		if at == s {
			u.all = append(u.all[:i:i], u.all[i+1:]...)
			break
		}
	}
	for i := len(u.all) - 1; i >= 0; i-- { // those that send to it alone
		if o := u.all[i]; o.peer == s {
			u.close(o)
			i = min(i, len(u.all))
		}
	}
}

// file is a copy of the descriptor.
func (u *randomUDP) file(s *randomSocket) *os.File {
	f, err := s.conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		u.fatalf("file: %v", err)
	}
	return f
}

func (u *randomUDP) dup(s *randomSocket) {
	if len(s.copies) == 2 {
		return
	}
	u.drain(s)
	u.copy(s)
}

// copy duplicates a descriptor. What is in memory then, the first one has. What its sender sends
// later, the kernel has, and a copy would give it before that.
func (u *randomUDP) copy(s *randomSocket) {
	u.note("%d is duplicated", s.id)
	f := u.file(s)
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		u.fatalf("copy: %v", err)
	}
	s.copies = append(s.copies, c)
	for sender, q := range s.left {
		s.first[sender] = len(q)
	}
}

// pass has another process receive on the socket.
func (u *randomUDP) pass(to *randomSocket) {
	s := u.all[u.r.IntN(len(u.all))]
	at, found := u.target(s)
	if found != to || s == to {
		return
	}
	u.drain(to)
	u.note("%d is passed on, and %d sends there", to.id, s.id)
	f := u.file(to)
	defer f.Close()
	n := 1 + u.r.IntN(5)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), udpReaderEnv+"="+strconv.Itoa(n))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, os.Stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		u.fatalf("start: %v", err)
	}
	var want strings.Builder
	for range n {
		b := s.next(u.r)
		fmt.Fprintf(&want, "%v %x\n", s.at, b)
		if err := s.write(at, b); err != nil {
			u.fatalf("send: %v", err)
		}
	}
	if err := cmd.Wait(); err != nil || out.String() != want.String() {
		u.fatalf("the other process has %q, %v; want %q", out.String(), err, want.String())
	}
}

// surelyDirect is how many datagrams of a run go through memory, however busy the machine is.
const surelyDirect = 30

// begin makes two sockets. One sends to the other until surelyDirect datagrams have gone through
// memory.
func (u *randomUDP) begin() {
	var pair []*randomSocket
	for len(pair) < 2 {
		if s := u.add(0, nil); !s.shared {
			pair = append(pair, s)
		}
	}
	s, to := pair[0], pair[1]
	// A flow begins after a pause: SPEC 10.3.
	for late := time.Now().Add(testWait); ; time.Sleep(time.Millisecond) {
		for range 4 {
			b := s.next(u.r)
			if err := s.write(to.at, b); err != nil {
				u.fatalf("send: %v", err)
			}
			to.left[s] = append(to.left[s], b)
		}
		u.receive(to, to.waiting())
		c, ok := s.conn.(*directsockets.UDPConn)
		if !ok || c.Stats().SentDirect >= surelyDirect {
			return
		}
		if time.Now().After(late) {
			u.fatalf("%d datagrams went through memory", c.Stats().SentDirect)
		}
	}
}

func (u *randomUDP) run(steps int) {
	u.begin()
	for len(u.all) < 4 {
		u.add(0, nil)
	}
	for i := 0; i < steps; i++ {
		s := u.all[u.r.IntN(len(u.all))]
		switch k := u.r.IntN(100); {
		case k < 45:
			u.send()
		case k < 65:
			u.receive(s, u.r.IntN(s.waiting()+1))
		case k < 70:
			u.drain(s)
		case k < 78:
			if len(s.copies) == 0 {
				u.together(s)
			}
		case k < 88:
			u.crowd()
		case k < 91:
			u.takeOver(s)
		case k < 94:
			if len(u.all) < 8 {
				peer := s
				if u.r.IntN(2) == 0 || s.peer != nil {
					peer = nil
				}
				u.add(0, peer)
			}
		case k < 97:
			if len(u.all) > 4 {
				if u.r.IntN(2) == 0 {
					u.close(s)
				} else {
					u.closeUnder(s)
				}
				u.settle()
			}
		case k < 99:
			u.dup(s)
		default:
			u.pass(s)
		}
		for len(u.all) < 4 {
			u.add(0, nil)
		}
	}
	for _, s := range u.all {
		u.drain(s)
	}
	for len(u.all) > 0 {
		u.close(u.all[0])
	}
}

// TestUDPRandom makes the same random calls on the kernel's sockets and on direct ones: sends,
// sends and receives by several goroutines at once, sockets that take another one's sender over,
// are closed, duplicated and passed to another process. Both do what a model of the kernel says,
// in each sender's order.
func TestUDPRandom(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	cfg := &directsockets.Config{Broker: startBroker(t), UpgradeSends: 1}
	direct, ran := uint64(0), uint64(0)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ran++
			for _, cfg := range []*directsockets.Config{nil, cfg} {
				u := &randomUDP{t: t, r: rand.New(rand.NewPCG(seed, 7)), cfg: cfg}
				t.Cleanup(func() {
					for _, s := range u.all {
						s.conn.Close()
						for _, c := range s.copies {
							c.Close()
						}
					}
				})
				u.run(150)
				direct += u.direct
			}
		})
	}
	if direct < surelyDirect*ran {
		t.Errorf("%d datagrams went through memory", direct)
	}
	t.Logf("%d datagrams went through memory", direct)
}
