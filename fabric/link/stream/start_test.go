package stream

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

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
