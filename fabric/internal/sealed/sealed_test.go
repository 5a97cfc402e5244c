package sealed_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"exnet/fabric/fabrictest"
	"exnet/fabric/internal/sealed"
)

// wire is what is on its way in one direction. It takes and gives as much as it likes, or nothing.
type wire struct {
	rng    *rand.Rand
	buf    []byte
	closed bool
}

func (w *wire) send(p []byte) (int, syscall.Errno) {
	n := min(len(p), w.rng.IntN(40000)-5000)
	if n <= 0 {
		return 0, syscall.EAGAIN
	}
	w.buf = append(w.buf, p[:n]...)
	return n, 0
}

func (w *wire) receive(p, more []byte) (n int, _ syscall.Errno) {
	if len(w.buf) == 0 && w.closed {
		return 0, 0
	}
	most := min(len(w.buf), w.rng.IntN(40000)-5000)
	if most <= 0 {
		return 0, syscall.EAGAIN
	}
	for _, to := range [][]byte{p, more} {
		k := copy(to, w.buf[:most-n])
		w.buf, n = w.buf[k:], n+k
	}
	return n, 0
}

// socket sends over one wire and receives from the other.
type socket struct{ to, from *wire }

func (s socket) Send(p []byte) (int, syscall.Errno)          { return s.to.send(p) }
func (s socket) Receive(p, more []byte) (int, syscall.Errno) { return s.from.receive(p, more) }

// pair returns the ends of a TLS connection that have shaken hands and were taken.
func pair(t *testing.T, seed uint64) (a, b *tls.Conn, x, y *sealed.Conn, there *wire) {
	t.Helper()
	ca, cb := fabrictest.TCP(t)
	a, b = tls.Client(sealed.Under(ca), fabrictest.TLSConfig(t)), tls.Server(sealed.Under(cb), fabrictest.TLSConfig(t))
	t.Cleanup(func() { ca.Close(); cb.Close() })
	done := make(chan error, 1)
	go func() { done <- b.Handshake() }()
	if err := errors.Join(a.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	// The server's tickets may be on their way: they are read while there is a socket.
	if _, err := b.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	there = &wire{rng: rng}
	back := &wire{rng: rng}
	_, x = sealed.Of(a)
	_, y = sealed.Of(b)
	x.Take(socket{there, back})
	y.Take(socket{back, there})
	return a, b, x, y, there
}

// What is written comes out at the other end, whatever a socket takes and gives at a time, and
// nobody waits.
func TestTaken(t *testing.T) {
	for seed := range uint64(8) {
		a, b, x, _, there := pair(t, seed)
		rng := rand.New(rand.NewPCG(seed, 2))
		var sent, got []byte
		buf := make([]byte, 1<<16)
		for len(sent) < 4<<20 || len(got) < len(sent) {
			if len(sent) < 4<<20 && x.Pending() < 1<<20 {
				p := buf[:1+rng.IntN(1<<rng.IntN(16))]
				for i := range p {
					p[i] = byte(rng.Uint32())
				}
				if _, err := a.Write(p); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, p...)
			}
			if errno := x.Flush(); errno != 0 && (errno != syscall.EAGAIN || x.Pending() == 0) || errno == 0 && x.Pending() > 0 {
				t.Fatal(errno, x.Pending())
			}
			n, err := b.Read(buf)
			if err != nil && !errors.Is(err, sealed.ErrAgain) {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: other bytes came", seed)
		}
		if _, err := b.Read(buf); !errors.Is(err, sealed.ErrAgain) {
			t.Fatalf("nothing is left: %v", err)
		}
		there.closed = true
		var err error
		for err = sealed.ErrAgain; errors.Is(err, sealed.ErrAgain); _, err = b.Read(buf) {
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("hung up: %v", err)
		}
	}
}

// A record that was changed on its way ends the connection.
func TestChanged(t *testing.T) {
	a, b, x, _, there := pair(t, 1)
	if _, err := a.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	for x.Flush() != 0 {
	}
	there.buf[500] ^= 1
	var err error
	for err = sealed.ErrAgain; errors.Is(err, sealed.ErrAgain); _, err = b.Read(make([]byte, 1000)) {
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// What is no TCP connection stays as it is.
func TestUnder(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if sealed.Under(a) != a {
		t.Error("a pipe is no socket")
	}
	if _, u := sealed.Of(tls.Client(a, fabrictest.TLSConfig(t))); u != nil {
		t.Error("TLS over a pipe")
	}
}

// What nobody flushes is bounded.
func TestWriteUnread(t *testing.T) {
	_, _, x, _, _ := pair(t, 1)
	record := make([]byte, 1<<10)
	for range 1 << 10 {
		if n, err := x.Write(record); n != len(record) || err != nil {
			t.Fatal(n, err, x.Pending())
		}
	}
	if n, err := x.Write(record); n != 0 || err == nil {
		t.Fatalf("%d bytes wait, and more are taken: %d, %v", x.Pending(), n, err)
	}
}
