package stream

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric/link"
)

// polledNIC has consumers that poll a link from the moment at which the NIC knows it.
type polledNIC struct {
	link.NIC
	over  atomic.Bool
	polls sync.WaitGroup
}

func (n *polledNIC) AddLink(a link.Active) {
	n.NIC.AddLink(a)
	n.polls.Go(func() {
		for !n.over.Load() {
			a.Poll()
			runtime.Gosched()
		}
	})
}

// A link may be polled while New greets the peer: the race detector would see what Poll reads too
// early.
func TestPolledWhileItStarts(t *testing.T) {
	a, b := tcp(t)
	n := &polledNIC{NIC: newNIC(t, victimID)}
	var greeted sync.WaitGroup
	greeted.Go(func() { greetVictim(t, b, nil) })
	l, err := New(n, Config{Peer: peerID, Conns: []net.Conn{a}, DownAfter: hang})
	greeted.Wait()
	if err != nil {
		t.Fatal(err)
	}
	n.over.Store(true)
	n.polls.Wait()
	_ = l.Close() // it may be down
	<-l.Done()
}

// TCP tries again each second while nothing gets through, as far as the kernel lets it.
func TestTriesAgainEachSecond(t *testing.T) {
	a, b := tcp(t)
	if raw, err := a.(*net.TCPConn).SyscallConn(); err != nil {
		t.Fatal(err)
	} else if cerr := raw.Control(func(fd uintptr) {
		_, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS)
	}); cerr != nil || err != nil {
		t.Skip("the kernel has no TCP_RTO_MAX_MS: ", cerr, err)
	}
	var greeted sync.WaitGroup
	greeted.Go(func() { greetVictim(t, b, nil) })
	l, err := New(newNIC(t, victimID), Config{Peer: peerID, Conns: []net.Conn{a}, DownAfter: hang})
	greeted.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range l.conns {
		if ms, err := unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS); ms != 1000 || err != nil {
			t.Errorf("connection %d: %d ms, %v", i, ms, err)
		}
	}
	_ = l.Close()
	<-l.Done()
}

// Who wakes the driver may be held up between saying so and writing: whenever the writes come, the
// descriptor for which the driver waits is quiet in the end.
func TestLateWake(t *testing.T) {
	l := new(Link)
	if err := l.events.open(); err != nil {
		t.Fatal(err)
	}
	defer l.events.close()
	write := func() {
		if _, err := unix.Write(l.events.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what  string
		steps string // s: one says that it wakes; w: one writes; h: the driver looks, in two steps n and r
	}{
		{"in time", "swh"},
		{"late", "shwh"},
		{"late, and the driver looks between", "shhhwhh"},
		{"two, the first one late", "shswhwh"},
		{"two, both late", "shshwhwh"},
		{"two, both late, at once", "shshwwh"},
		{"two, the second one while the driver looks", "swnswrh"},
		{"two, the second one while the driver looks for the first one", "shnswwrhh"},
	} {
		for _, step := range c.steps {
			switch step {
			case 's':
				if l.woken.Swap(true) {
					t.Fatalf("%s: woken twice", c.what)
				}
			case 'w':
				write()
			case 'h':
				l.takeWakes()
			case 'n':
				l.countWake()
			case 'r':
				l.readWakes()
			}
		}
		fds := []unix.PollFd{{Fd: int32(l.events.set), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
			t.Errorf("%s: the descriptor stays readable: %d, %v", c.what, n, err)
		}
		if l.unheard != 0 {
			t.Errorf("%s: %d wakes are not heard", c.what, l.unheard)
			l.unheard = 0
		}
	}
}
