package directsockets_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
)

// TestUDPSenders has goroutines send by one UDP socket to a receiver that sleeps now and then.
// The kernel has room for all that is on its way. So each sender's datagrams come in its order,
// none is lost and none comes twice, as by plain UDP.
func TestUDPSenders(t *testing.T) {
	cfg := &directsockets.Config{Broker: startBroker(t), UpgradeSends: 1}
	for name, tt := range map[string]struct {
		cfg                     *directsockets.Config
		connected, shared, fail bool // shared: the receiver has SO_REUSEPORT
	}{
		"kernel":            {fail: true},
		"direct":            {cfg: cfg},
		"connected":         {cfg: cfg, connected: true},
		"shared":            {cfg: cfg, shared: true},
		"some sends fail":   {cfg: cfg, fail: true},
		"shared, some fail": {cfg: cfg, shared: true, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := &sendersTest{t: t, fail: tt.fail, to: udpSocket(t, tt.cfg, tt.shared, nil)}
			u.at = u.to.LocalAddr().(*net.UDPAddr)
			var peer net.Addr
			if tt.connected {
				peer = u.at
			}
			u.from = udpSocket(t, tt.cfg, false, peer)
			u.run()
			if c, ok := u.to.(*directsockets.UDPConn); ok {
				s := c.Stats()
				t.Logf("%d datagrams came through memory, %d by the kernel", s.ReceivedDirect, s.ReceivedShadow)
				if s.ReceivedDirect == 0 {
					t.Error("none came through memory")
				}
			}
		})
	}
}

// udpSocket makes a UDP socket until the test's end: the kernel's own if cfg is nil. It is
// connected if there is a peer.
func udpSocket(t *testing.T, cfg *directsockets.Config, shared bool, peer net.Addr) net.PacketConn {
	t.Helper()
	listen, dial := net.ListenConfig{}, net.Dialer{}
	if shared {
		listen.Control = shareable
	}
	var c any
	var err error
	switch at := ownLoopback().String() + ":0"; {
	case peer != nil:
		c, err = (&directsockets.Dialer{Dialer: dial, Config: *cfg}).Dial("udp4", peer.String())
	case cfg == nil:
		c, err = listen.ListenPacket(context.Background(), "udp4", at)
	default:
		c, err = (&directsockets.ListenConfig{ListenConfig: listen, Config: *cfg}).ListenPacket(context.Background(), "udp4", at)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.(net.PacketConn).Close() })
	return c.(net.PacketConn)
}

// How many goroutines send, and how many of their datagrams are on their way, at most.
const (
	sendersMany  = 4
	sendersAhead = 30
)

// refused is a datagram that the kernel refuses: it is too long.
var refused = make([]byte, 65508)

// sendersTest has goroutines send by one socket to another one.
type sendersTest struct {
	t        *testing.T
	from, to net.PacketConn
	at       *net.UDPAddr
	fail     bool // the kernel refuses some sends
	room     chan struct{}
	next     [sendersMany]uint32 // by sender: what it sends next
	comes    [sendersMany]uint32 // and what comes next
	wrong    int
}

func (u *sendersTest) run() {
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	u.room = make(chan struct{}, sendersAhead)
	r := rand.New(rand.NewPCG(7, 3))
	for range rounds {
		var wg sync.WaitGroup
		all := 0
		for i := range u.next {
			n := r.IntN(40)
			all += n
			wg.Go(func() { u.send(i, n) })
		}
		u.receive(all)
		wg.Wait()
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	}
	if u.wrong > 0 {
		u.t.Errorf("%d datagrams came out of order", u.wrong)
	}
}

func (u *sendersTest) write(b []byte) error {
	if c, ok := u.from.(net.Conn); ok && c.RemoteAddr() != nil {
		_, err := c.Write(b)
		return err
	}
	_, err := u.from.WriteTo(b, u.at)
	return err
}

func (u *sendersTest) send(sender, n int) {
	for range n {
		u.room <- struct{}{}
		i := u.next[sender]
		u.next[sender]++
		b := make([]byte, 8+i%100)
		binary.BigEndian.PutUint32(b, uint32(sender))
		binary.BigEndian.PutUint32(b[4:], i)
		if u.fail && i%64 == 0 {
			if err := u.write(refused); err == nil {
				u.t.Error("the kernel has taken a datagram that is too long")
			}
		}
		if err := u.write(b); err != nil {
			u.t.Error(err)
		}
	}
}

func (u *sendersTest) receive(n int) {
	buf := make([]byte, 1<<16)
	_ = u.to.SetReadDeadline(time.Now().Add(testWait))
	for range n {
		k, _, err := u.to.ReadFrom(buf)
		if err != nil {
			u.t.Fatalf("%v: %v have come, %d out of order", err, u.comes, u.wrong)
		}
		sender, i := binary.BigEndian.Uint32(buf[:k]), binary.BigEndian.Uint32(buf[4:k])
		if i != u.comes[sender] {
			if u.wrong++; u.wrong < 10 {
				u.t.Errorf("datagram %d of sender %d comes in place of %d", i, sender, u.comes[sender])
			}
		}
		u.comes[sender] = i + 1
		<-u.room
	}
}
