package directsockets_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets"

	"golang.org/x/sys/unix"
)

// tcpConn is what net.TCPConn and Conn have in common.
type tcpConn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
	File() (*os.File, error)
	SyscallConn() (syscall.RawConn, error)
}

var port = regexp.MustCompile(`:[0-9]+`)

// transcript is what the calls of a program on a connection returned.
type transcript struct{ bytes.Buffer }

// say adds a line for a call: its error, without addresses, and what a program asks of it.
func (l *transcript) say(call string, err error) {
	fmt.Fprintf(l, "%-16s ", call)
	var op *net.OpError
	var sys *os.SyscallError
	var ne net.Error
	var errno syscall.Errno
	if errors.As(err, &op) {
		fmt.Fprintf(l, "OpError %s %s source %t addr %t ", op.Op, op.Net, op.Source != nil, op.Addr != nil)
		err = op.Err
	}
	if errors.As(err, &sys) {
		fmt.Fprintf(l, "in %s ", sys.Syscall)
	}
	if errors.As(err, &errno) {
		fmt.Fprintf(l, "%s ", unix.ErrnoName(errno))
	}
	if errors.As(err, &ne) && ne.Timeout() {
		fmt.Fprint(l, "timeout ")
	}
	text := port.ReplaceAllString(fmt.Sprint(err), ":PORT")
	fmt.Fprintf(l, "%T %s %t %t\n", err, text, errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded))
}

func (l *transcript) count(call string, n int64, err error) {
	l.say(fmt.Sprintf("%s %d", call, n), err)
}

func (l *transcript) read(c tcpConn) {
	n, err := c.Read(make([]byte, 100))
	l.count("Read", int64(n), err)
}

func (l *transcript) write(c tcpConn) {
	n, err := c.Write([]byte("x"))
	l.count("Write", int64(n), err)
}

// rest are all other calls but Close.
func (l *transcript) rest(c tcpConn) {
	l.say("CloseRead", c.CloseRead())
	l.say("CloseWrite", c.CloseWrite())
	l.say("SetNoDelay", c.SetNoDelay(true))
	l.say("SetKeepAlive", c.SetKeepAlive(true))
	l.say("SetKeepAlivePeriod", c.SetKeepAlivePeriod(time.Minute))
	l.say("SetKeepAliveConfig", c.SetKeepAliveConfig(net.KeepAliveConfig{}))
	l.say("SetReadBuffer", c.SetReadBuffer(10000))
	l.say("SetWriteBuffer", c.SetWriteBuffer(10000))
	l.say("SetLinger", c.SetLinger(3))
	l.say("SetDeadline", c.SetDeadline(time.Now().Add(time.Hour)))
	l.say("SetReadDeadline", c.SetReadDeadline(time.Time{}))
	l.say("SetWriteDeadline", c.SetWriteDeadline(time.Time{}))
	n, err := c.ReadFrom(strings.NewReader("abc"))
	l.count("ReadFrom", n, err)
	n, err = c.WriteTo(io.Discard)
	l.count("WriteTo", n, err)
}

// raw is SyscallConn's.
func (l *transcript) raw(rc syscall.RawConn) {
	l.say("Control", rc.Control(func(uintptr) {}))
	l.say("raw Read", rc.Read(func(uintptr) bool { return true }))
	l.say("raw Write", rc.Write(func(uintptr) bool { return true }))
}

// tcpState is that of the kernel's socket, TCP_INFO's.
func tcpState(t *testing.T, c tcpConn) (state uint8) {
	t.Helper()
	rc, err := c.SyscallConn()
	if err == nil {
		cerr := rc.Control(func(fd uintptr) {
			var info *unix.TCPInfo
			if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				state = info.State
			}
		})
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// knows waits until c's kernel knows that the peer has ended.
func knows(t *testing.T, c tcpConn, states ...uint8) {
	t.Helper()
	eventually(t, "the end has come", func() bool { return bytes.IndexByte(states, tcpState(t, c)) >= 0 })
}

// resets has b reset its connection with a, which is told when its kernel knows.
func (l *transcript) resets(t *testing.T, a, b tcpConn) {
	t.Helper()
	l.say("SetLinger", b.SetLinger(0))
	l.say("Close", b.Close())
	knows(t, a, unix.BPF_TCP_CLOSE)
}

// endings are programs: each ends a connection in some way and writes down what its calls return.
// b is the other end, which a test of package net reads and writes as well.
var endings = []struct {
	name string
	run  func(t *testing.T, l *transcript, a, b tcpConn)
}{
	{"after Close", func(t *testing.T, l *transcript, a, b tcpConn) {
		rc, err := a.SyscallConn()
		l.say("SyscallConn", err)
		l.say("Close", a.Close())
		l.say("Close", a.Close())
		l.read(a)
		l.write(a)
		l.rest(a)
		_, err = a.File()
		l.say("File", err)
		_, err = a.SyscallConn()
		l.say("SyscallConn", err)
		l.raw(rc)
		n, err := a.Read(nil)
		l.count("Read nil", int64(n), err)
		n, err = a.Write(nil)
		l.count("Write nil", int64(n), err)
		l.read(b)
	}},
	{"both closed in order", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("CloseWrite", a.CloseWrite())
		l.read(b)
		l.say("Close", b.Close())
		l.read(a)
		l.write(a)
		knows(t, a, unix.BPF_TCP_CLOSE)
		l.say("CloseWrite", a.CloseWrite())
		l.rest(a)
		l.read(a)
		l.write(a)
		l.say("Close", a.Close())
	}},
	{"CloseWrite twice", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("CloseWrite", a.CloseWrite())
		l.say("CloseWrite", a.CloseWrite())
		l.write(a)
		n, err := a.ReadFrom(strings.NewReader("abc"))
		l.count("ReadFrom", n, err)
		l.write(b)
		l.read(a)
		l.read(b)
	}},
	{"CloseRead", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("CloseRead", a.CloseRead())
		l.say("CloseRead", a.CloseRead())
		l.read(a)
		l.write(a)
		l.read(b)
		n, err := a.WriteTo(io.Discard)
		l.count("WriteTo", n, err)
	}},
	{"the peer closes", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("Close", b.Close())
		knows(t, a, unix.BPF_TCP_CLOSE_WAIT)
		l.read(a)
		l.write(a)
		knows(t, a, unix.BPF_TCP_CLOSE)
		l.write(a)
		l.write(a)
		l.read(a)
		l.say("CloseWrite", a.CloseWrite())
		l.rest(a)
		l.say("Close", a.Close())
	}},
	{"a reset is read", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.resets(t, a, b)
		l.read(a)
		l.read(a)
		l.write(a)
		l.write(a)
		l.read(a)
		l.rest(a)
		l.say("Close", a.Close())
	}},
	{"a reset is written", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.resets(t, a, b)
		l.write(a)
		l.write(a)
		l.read(a)
		l.read(a)
		l.say("CloseWrite", a.CloseWrite())
		l.say("Close", a.Close())
	}},
	{"a reset is met by WriteTo", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.resets(t, a, b)
		n, err := a.WriteTo(io.Discard)
		l.count("WriteTo", n, err)
		n, err = a.WriteTo(io.Discard)
		l.count("WriteTo", n, err)
		n, err = a.ReadFrom(strings.NewReader("abc"))
		l.count("ReadFrom", n, err)
	}},
	{"a reset is met by ReadFrom", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.resets(t, a, b)
		n, err := a.ReadFrom(strings.NewReader("abc"))
		l.count("ReadFrom", n, err)
		n, err = a.ReadFrom(strings.NewReader("abc"))
		l.count("ReadFrom", n, err)
		l.read(a)
	}},
	{"a reset by unread bytes", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.write(a)
		l.say("Close", b.Close())
		knows(t, a, unix.BPF_TCP_CLOSE)
		l.read(a)
		l.write(a)
		l.say("CloseRead", a.CloseRead())
		l.say("CloseWrite", a.CloseWrite())
	}},
	{"bytes before the end", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.write(b)
		l.say("Close", b.Close())
		knows(t, a, unix.BPF_TCP_CLOSE_WAIT)
		l.read(a)
		l.read(a)
		l.read(a)
	}},
	{"deadlines", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("SetDeadline", a.SetDeadline(time.Unix(1, 0)))
		l.read(a)
		l.write(a)
		n, err := a.Read(nil)
		l.count("Read nil", int64(n), err)
		n, err = a.Write(nil)
		l.count("Write nil", int64(n), err)
		m, err := a.WriteTo(io.Discard)
		l.count("WriteTo", m, err)
		m, err = a.ReadFrom(strings.NewReader("abc"))
		l.count("ReadFrom", m, err)
		l.say("SetDeadline", a.SetDeadline(time.Time{}))
		l.write(a)
		l.read(b)
		l.say("SetReadDeadline", a.SetReadDeadline(time.Now().Add(time.Millisecond)))
		l.read(a)
		l.write(a)
		l.read(b)
	}},
	{"a deadline, then Close", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("SetDeadline", a.SetDeadline(time.Unix(1, 0)))
		l.say("Close", a.Close())
		l.read(a)
		l.write(a)
		l.say("SetDeadline", a.SetDeadline(time.Time{}))
		l.read(b)
	}},
	{"a deadline after the end", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("Close", b.Close())
		knows(t, a, unix.BPF_TCP_CLOSE_WAIT)
		l.say("SetDeadline", a.SetDeadline(time.Unix(1, 0)))
		l.read(a)
		l.write(a)
	}},
	{"Close with a reader", func(t *testing.T, l *transcript, a, b tcpConn) { blocked(l, a, b, tcpConn.Close) }},
	{"CloseRead with a reader", func(t *testing.T, l *transcript, a, b tcpConn) { blocked(l, a, b, tcpConn.CloseRead) }},
	{"a reset with a reader", func(t *testing.T, l *transcript, a, b tcpConn) {
		blocked(l, a, b, func(tcpConn) error { return errors.Join(b.SetLinger(0), b.Close()) })
		l.write(a)
	}},
	{"Close with a writer", func(t *testing.T, l *transcript, a, b tcpConn) {
		wrote := make(chan error)
		go func() {
			_, err := a.Write(make([]byte, 64<<20))
			wrote <- err
		}()
		_, err := io.ReadFull(b, make([]byte, 100000))
		l.say("ReadFull", err)
		l.say("Close", a.Close())
		l.say("Write", <-wrote)
		_, err = b.WriteTo(io.Discard)
		l.say("WriteTo", err)
	}},
	{"SetLinger after CloseWrite", func(t *testing.T, l *transcript, a, b tcpConn) {
		l.say("CloseWrite", a.CloseWrite())
		l.read(b)
		l.say("SetLinger", a.SetLinger(0))
		l.say("Close", a.Close())
		knows(t, b, unix.BPF_TCP_CLOSE)
		l.read(b)
	}},
}

// blocked ends a connection while a Read of it waits, or is about to.
func blocked(l *transcript, a, b tcpConn, end func(tcpConn) error) {
	read := make(chan error)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := a.Read(make([]byte, 100))
		read <- err
	}()
	<-begun
	time.Sleep(time.Millisecond) // either order has the same transcript
	l.say("end", end(a))
	l.say("Read", <-read)
	l.write(b)
	l.say("Close", a.Close())
}

// TestErrors runs the same programs over package net and over connections in every mode: each call
// returns the same error.
func TestErrors(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	make2 := func(t *testing.T) (c, s *directsockets.Conn) {
		c, s = pair(t, cfg, cfg)
		makeDirect(t, c, s)
		return c, s
	}
	modes := []struct {
		name string
		make func(t *testing.T) (a, b tcpConn)
	}{
		{"tcp", func(t *testing.T) (a, b tcpConn) { return pair(t, directsockets.Config{}, directsockets.Config{}) }},
		{"set up", func(t *testing.T) (a, b tcpConn) { return pair(t, cfg, cfg) }},
		{"direct", func(t *testing.T) (a, b tcpConn) { return make2(t) }},
		{"direct, the server", func(t *testing.T) (a, b tcpConn) { a, b = make2(t); return b, a }},
		{"demoted", func(t *testing.T) (a, b tcpConn) {
			c, s := make2(t)
			if err := c.Demote(); err != nil {
				t.Fatal(err)
			}
			return c, s
		}},
		{"the peer demoted", func(t *testing.T) (a, b tcpConn) {
			c, s := make2(t)
			if err := s.Demote(); err != nil {
				t.Fatal(err)
			}
			return c, s
		}},
	}
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			var want transcript
			c, s := tcpPair(t)
			a, b := c.(*net.TCPConn), s.(*net.TCPConn)
			e.run(t, &want, a, b)
			for _, m := range modes {
				var got transcript
				a, b := m.make(t)
				e.run(t, &got, a, b)
				if got.String() != want.String() {
					t.Errorf("%s:\n%s", m.name, diff(want.String(), got.String()))
				}
			}
		})
	}
}

// TestCloseBeforePromote: PROMOTE and a byte have come, and nobody has looked. Close resets the
// connection all the same.
func TestCloseBeforePromote(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	c, s := pair(t, cfg, cfg)
	s.Deafen()
	var sent uint64
	for deadline := time.Now().Add(10 * time.Second); sent == 0; {
		if _, err := c.Write([]byte{1}); err != nil || time.Now().After(deadline) {
			t.Fatal("no write was direct", err)
		}
		for name, n := range c.Stats().All() {
			if name == "sent direct" {
				sent = n
			}
		}
		if sent == 0 { // or the shadow would reset the connection
			if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			s.Deafen()
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d, %v: want ECONNRESET", n, err)
	}
}

// diff has the lines in which two transcripts differ.
func diff(want, got string) string {
	var out strings.Builder
	g := strings.Split(got, "\n")
	for i, w := range strings.Split(want, "\n") {
		have := ""
		if i < len(g) {
			have = g[i]
		}
		if w != have {
			fmt.Fprintf(&out, "%d: net   %s\n%d: here  %s\n", i, w, i, have)
		}
	}
	return out.String()
}
