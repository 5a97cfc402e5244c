package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// offered is a segment that was offered for a connection.
type offered struct {
	end     *segment.End
	refused chan wire.Reason
}

// offer has a client of a namespace's broker offer one, with a socket as proof.
func (l *lab) offer(n *netns.NS, proof syscall.RawConn, info segment.Info) offered {
	t := l.t
	t.Helper()
	c, err := client.Dial(client.Config{In: n.Do})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	l.within(timeLimit, "there is a broker", c.Connected)
	seg, err := segment.Create(info, segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := offered{refused: make(chan wire.Reason, 1)}
	if o.end, err = segment.NewEnd(seg, segment.Client, bells[0], nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.end.Close(false); seg.Retire() })
	err = c.Offer(client.Socket{Conn: proof}, info.Nonce, seg.Fd(), bells[1], func(r wire.Reason) { o.refused <- r })
	if err = errors.Join(err, unix.Close(bells[1])); err != nil {
		t.Fatal(err)
	}
	return o
}

// forged makes a connected socket in a namespace with the addresses and the sequence numbers of
// another one, which nothing was sent on.
func forged(t *testing.T, n *netns.NS, of net.Conn) syscall.RawConn {
	t.Helper()
	const receiveQueue, sendQueue = 1, 2
	set := func(fd, name, value int) {
		t.Helper()
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, name, value); err != nil {
			t.Fatal(err)
		}
	}
	numbers := make(map[int]int)
	if err := raw(t, of).Control(func(fd uintptr) {
		set(int(fd), unix.TCP_REPAIR, 1)
		for _, q := range []int{receiveQueue, sendQueue} {
			set(int(fd), unix.TCP_REPAIR_QUEUE, q)
			seq, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			if err != nil {
				t.Fatal(err)
			}
			numbers[q] = seq
		}
		set(int(fd), unix.TCP_REPAIR, 0)
	}); err != nil {
		t.Fatal(err)
	}
	var f *os.File
	if err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "forged")
		set(fd, unix.TCP_REPAIR, 1)
		at := func(a net.Addr) *unix.SockaddrInet4 {
			p := a.(*net.TCPAddr).AddrPort()
			return &unix.SockaddrInet4{Addr: p.Addr().Unmap().As4(), Port: int(p.Port())}
		}
		if err := unix.Bind(fd, at(of.LocalAddr())); err != nil {
			return err
		}
		for q, seq := range numbers {
			set(fd, unix.TCP_REPAIR_QUEUE, q)
			set(fd, unix.TCP_QUEUE_SEQ, seq)
		}
		return unix.Connect(fd, at(of.RemoteAddr()))
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func raw(t *testing.T, c net.Conn) syscall.RawConn {
	t.Helper()
	r, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A container that knows all of another one's connection, addresses and sequence numbers, and even
// shows its socket, gives its server no segment; the client itself does, afterwards.
func TestRootForgedOffer(t *testing.T) {
	longtest.Nightly(t) // the agent may come to the server's listener too late
	l := newLab(t)
	c := netnstest.New(t)
	command(t, l.router, "ip link add br1 type bridge")
	command(t, l.router, "ip link set br1 up")
	l.attach(c, "br1", "v9", "172.30.0.2/24") // the victim's address, on a bridge of its own
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	l.chat(c, inGo, "server", "172.30.0.2", 8080) // another one's port
	l.chat(l.a, inGo, "client", "172.30.0.3", 8080)
	var victim net.Conn
	dial := func() (err error) { victim, err = net.Dial("tcp", "172.30.0.3:8080"); return err }
	if err := l.a.Do(dial); err != nil {
		t.Fatal(err)
	}
	defer victim.Close()
	local, remote := victim.LocalAddr().(*net.TCPAddr).AddrPort(), victim.RemoteAddr().(*net.TCPAddr).AddrPort()
	info := func() segment.Info { return segment.Info{Nonce: segment.NewNonce(), Client: local, Server: remote} }
	for name, o := range map[string]offered{
		"a forged socket":     l.offer(c, forged(t, c, victim), info()),
		"the victim's socket": l.offer(c, raw(t, victim), info()),
	} {
		t.Logf("%s: refused: %v", name, <-o.refused)
		if o.end.Attached() {
			t.Errorf("%s: the server has taken it", name)
		}
	}
	o, b := l.offer(l.a, raw(t, victim), info()), make([]byte, 1)
	l.within(timeLimit, "the server takes the client's own", func() bool {
		select {
		case why := <-o.refused:
			t.Fatal("the client's own: ", why)
		default:
		}
		if _, err := victim.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = victim.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.ReadFull(victim, b) // the echo, which may be late
		return o.end.Attached()
	})
}
