package agent

import (
	"net"
	"os"
	"sync"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// A container that offers segments to another one's server without end, on connections of its own,
// keeps nobody else from that server, and what the agent has held for it goes with it.
func TestRootGroupFlood(t *testing.T) {
	longtest.Nightly(t)
	const connections, clients = 300, 4
	l := newLab(t)
	c := netnstest.New(t)
	l.attach(c, "br0", "v9", "172.30.0.4/24")
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	l.chat(c, inGo, "server", "172.30.0.4", 8081) // so that its namespace has a broker
	l.becomesDirect(l.a, l.chat(l.a, inC, "client", "172.30.0.3", 8080))
	before := descriptors(t, os.Getpid())

	end := make(chan struct{})
	var flood sync.WaitGroup
	var mu sync.Mutex
	refused := make(map[wire.Reason]int)
	for range clients {
		cl, err := client.Dial(client.Config{In: c.Do})
		if err != nil {
			t.Fatal(err)
		}
		l.within(timeLimit, "there is a broker", cl.Connected)
		var conns []net.Conn
		if err := c.Do(func() error {
			for range connections / clients {
				conn, err := net.Dial("tcp", "172.30.0.3:8080")
				if err != nil {
					return err
				}
				conns = append(conns, conn)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		flood.Go(func() {
			defer cl.Close()
			for i := 0; ; i++ {
				select {
				case <-end:
					for _, conn := range conns {
						conn.Close()
					}
					return
				default:
				}
				why := offerOnce(t, cl, conns[i%len(conns)], func(r wire.Reason) {
					mu.Lock()
					refused[r]++
					mu.Unlock()
				})
				if why != nil {
					l.t.Log("a client of the flood is turned away: ", why)
					<-end
				}
			}
		})
	}
	for range 3 {
		l.becomesDirect(l.a, l.chat(l.a, inC, "client", "172.30.0.3", 8080))
		l.becomesDirect(l.a, l.chat(l.a, inGo, "client", "172.30.0.3", 8080))
	}
	close(end)
	flood.Wait()
	mu.Lock()
	t.Log("refused: ", refused)
	mu.Unlock()
	l.within(timeLimit, "the agent has closed what it held", func() bool { return descriptors(t, os.Getpid()) <= before+64 })
}

// offerOnce offers a segment for a connection, and keeps nothing of it. The broker may have too
// much to do; another error says that it has hung up.
func offerOnce(t *testing.T, cl *client.Client, conn net.Conn, refused func(wire.Reason)) error {
	info := segment.Info{Nonce: segment.NewNonce(), Client: conn.LocalAddr().(*net.TCPAddr).AddrPort(), Server: conn.RemoteAddr().(*net.TCPAddr).AddrPort()}
	seg, err := segment.Create(info, segment.Config{})
	if err != nil {
		return err
	}
	defer seg.Retire()
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(bells[0])
	defer unix.Close(bells[1])
	_ = cl.Offer(client.Socket{Conn: raw(t, conn)}, info.Nonce, seg.Fd(), bells[1], refused) // or it is busy
	return nil
}
