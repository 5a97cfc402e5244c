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
