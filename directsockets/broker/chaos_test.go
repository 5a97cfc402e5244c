package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// TestNoBroker has none, and later one.
func TestNoBroker(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "later.sock")
	c, err := client.Dial(client.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Wait(context.Background()); !errors.Is(err, client.ErrNoBroker) {
		t.Errorf("%v", err)
	}
	if _, may := c.MayHaveOffer(5, 0); may || c.Listener(80) || c.Connected() {
		t.Error("something is seen")
	}
	ln := listen(t, "tcp4", "127.0.0.1:0")
	a := c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	closed := c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	closed.Close()
	startServer(t, Config{Path: path})
	brokertest.Eventually(t, "the listener is announced", func() bool { return c.Listener(port(ln.Addr())) })
	a.Close()
	brokertest.Eventually(t, "it is gone", func() bool { return !c.Listener(port(ln.Addr())) })
	c.Close()
	c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil).Close()
}

// TestChaos has many goroutines offer, claim, withdraw and listen while brokers come
// and go: every claim is answered once, every doorbell ends, nothing is left.
func TestChaos(t *testing.T) {
	netnstest.NeedFDs(t, 8000)
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "ds.sock")
	s, stop := startServer(t, Config{Path: path})
	dialer, server := dialClient(t, client.Config{Path: path}), dialClient(t, client.Config{Path: path})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return dialer.Listener(port(ln.Addr())) })
	var conns []connection
	for range 8 {
		conns = append(conns, connect(t, ln, ln.Addr().String()))
	}
	var granted, none, refused, without counter
	var bells struct {
		sync.Mutex
		all []bundle
	}
	var wg sync.WaitGroup
	// For a second, or on a busy machine until all has happened.
	began := time.Now()
	goesOn := func() bool {
		d := time.Since(began)
		return d < time.Second || d < 3*time.Minute && (granted.get() == 0 || none.get() == 0 || without.get() == 0)
	}
	for i, conn := range conns {
		raw0, raw1 := rawOf(t, conn.client), rawOf(t, conn.server)
		wg.Go(func() { // side 0
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for goesOn() {
				b := newBundle(t, conn.key)
				err := dialer.Offer(client.Socket{Conn: raw0}, b.nonce, b.seg, b.bell, func(wire.Reason) { refused.add() })
				b.handedOver()
				if err != nil {
					without.add()
					unix.Close(b.bell0)
					time.Sleep(time.Millisecond)
					continue
				}
				switch r.IntN(4) {
				case 0:
					dialer.Withdraw(b.nonce)
				case 1:
					dialer.Forget(b.nonce)
				}
				time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
				bells.Lock()
				bells.all = append(bells.all, b)
				bells.Unlock()
			}
		})
		wg.Go(func() { // side 1
			for goesOn() {
				done := make(chan struct{})
				err := server.Claim(client.Socket{Conn: raw1}, func(g client.Granted, err error) {
					defer close(done)
					switch {
					case err == nil:
						granted.add()
						unix.Close(g.Segment)
						unix.Close(g.Bell)
					case errors.Is(err, client.ErrNone):
						none.add()
					default:
						without.add()
					}
				})
				if err != nil {
					without.add()
					time.Sleep(time.Millisecond)
					continue
				}
				<-done
			}
		})
		wg.Go(func() {
			for goesOn() {
				a := dialer.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
				time.Sleep(time.Millisecond)
				a.Close()
			}
		})
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		stop()
		s, stop = startServer(t, Config{Path: path})
	}
	wg.Wait()
	dialer.Close()
	server.Close()
	for _, b := range bells.all {
		brokertest.Eventually(t, "every doorbell ends", b.ended)
		unix.Close(b.bell0)
	}
	brokertest.Eventually(t, "the broker is empty", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		held := 0
		for _, u := range s.users {
			held += int(u.local.held[clients].Load() + u.local.held[descriptors].Load())
		}
		return len(s.offers)+len(s.listeners)+len(s.sessions)+held+s.waiting.offers.Len() == 0
	})
	t.Logf("%d granted, %d failed claims, %d refused, %d without a broker", granted.n, none.n, refused.n, without.n)
	if granted.n == 0 || none.n == 0 || without.n == 0 {
		t.Error("something has never happened")
	}
}

// counter counts for several goroutines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
