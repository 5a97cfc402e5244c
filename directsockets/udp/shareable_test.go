package udp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
	"exnet/internal/shm"
)

// share has other sockets bind to the address of s, too.
func (s *Socket) share(t *testing.T) {
	t.Helper()
	var err error
	if e := s.cfg.Raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	s.Changed()
}

// TestTakenOver has another socket take a sender over while its receiver sleeps, as servers of
// DTLS do: it binds the same port, and connects. No datagram is left in memory, where nobody
// would look.
func TestTakenOver(t *testing.T) {
	for name, before := range map[string]bool{"shared before the flow": true, "shared while it sleeps": false} {
		t.Run(name, func(t *testing.T) {
			s, at := receiver(t)
			_, from := listen(t)
			tx, g := ends(t, from, at)
			if before {
				s.share(t)
			}
			s.in.beginFlow(g)
			f := s.in.flows[0]
			s.awake(f)
			if out := tx.Send([]byte("x"), datagram.Meta{}); out != datagram.Published {
				t.Fatal(out)
			}
			b := make([]byte, 10)
			if d, ok := s.Receive(b); !ok || d.N != 1 {
				t.Fatal("nothing is received")
			}
			if _, ok := s.Receive(b); ok {
				t.Fatal("a second datagram is received")
			}
			// It sleeps in the kernel's call.
			if !before {
				s.share(t)
			}
			// The bell, which the other socket gets.
			tx.Sent(1, shm.Nanotime())
			if tx.Bell() {
				t.Error("it takes a datagram by the kernel for a bell that will wake it")
			}
			if out := tx.Send([]byte("y"), datagram.Meta{}); out != datagram.ByKernel {
				t.Errorf("%v: a datagram is in memory, where nobody looks", out)
			}
			s.Received(netip.AddrPort{})
		})
	}
}

// TestTakenOverAwake has another socket take a sender over, and give it back, while its receiver
// is awake. The other socket has got datagrams that a record waits for. The receiver would take
// the next datagram by the kernel for one of them, so that it overtakes the record.
func TestTakenOverAwake(t *testing.T) {
	s, at := receiver(t)
	_, from := listen(t)
	tx, g := ends(t, from, at)
	s.share(t)
	s.in.beginFlow(g)
	f := s.in.flows[0]
	s.awake(f)
	if out := tx.Send([]byte("x"), datagram.Meta{}); out != datagram.Published {
		t.Fatal(out)
	}
	tx.Sent(1, shm.Nanotime()) // the other socket gets it
	if out := tx.Send([]byte("y"), datagram.Meta{}); out != datagram.ByKernel {
		t.Errorf("%v: a record waits for what another socket has got", out)
	}
	// The receiver finds nothing more of the sender's, which counts that as lost.
	b := make([]byte, 10)
	if d, ok := s.Receive(b); !ok || d.N != 1 {
		t.Fatal("nothing is received")
	}
	f.rx.Dry(f.rx.Kernel())
	if !tx.Settled(shm.Nanotime() + int64(datagram.SoftirqTime)) {
		t.Fatal("the sender does not know that nothing is on its way")
	}
	if out := tx.Send([]byte("z"), datagram.Meta{}); out != datagram.Published {
		t.Errorf("%v: nothing is on its way", out)
	}
	// A flow that begins later knows it from the beginning.
	_, from = listen(t)
	tx, g = ends(t, from, at)
	s.in.beginFlow(g)
	s.awake(s.in.flows[1])
	tx.Settled(shm.Nanotime() + int64(datagram.SoftirqTime))
	tx.Sent(1, shm.Nanotime())
	if out := tx.Send([]byte("y"), datagram.Meta{}); out != datagram.ByKernel {
		t.Errorf("%v: a record of a second flow waits", out)
	}
}
