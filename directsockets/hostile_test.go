package directsockets

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// directPairs serves connections within this process: each call makes one that is direct, both
// ends.
func directPairs(t *testing.T) (connect func() (a, b *Conn)) {
	t.Helper()
	s, err := broker.New(broker.Config{Path: filepath.Join(t.TempDir(), "ds.sock")})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	client, err := client.Dial(client.Config{Path: s.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	cfg := Config{Broker: client, Eager: true, Slots: 16, Ring: 64 << 10}
	lc := ListenConfig{Config: cfg}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() (a, b *Conn) {
		for !client.Listener(uint16(l.Addr().(*net.TCPAddr).Port)) {
			time.Sleep(time.Millisecond)
		}
		d := Dialer{Config: cfg}
		x, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		y, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a, b = x.(*Conn), y.(*Conn)
		var buf [1]byte
		for end := time.Now().Add(3 * time.Minute); !a.Stats().Direct() || !b.Stats().Direct(); {
			for _, way := range [][2]*Conn{{a, b}, {b, a}} {
				if _, err := way[0].Write(buf[:]); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], buf[:]); err != nil {
					t.Fatal(err)
				}
			}
			if time.Now().After(end) {
				t.Fatal("not direct", a.Stats(), b.Stats())
			}
		}
		return a, b
	}
}

// TestHostile: somebody writes at random over the segment of a connection. Its calls
// end, and another connection of the same process is not touched.
func TestHostile(t *testing.T) {
	connect := directPairs(t)
	other, far := connect()
	defer other.Close()
	defer far.Close()
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	resets := 0
	for round := 0; round < rounds || resets == 0; round++ {
		if round == 100*rounds {
			t.Fatalf("nobody noticed in %d rounds", round)
		}
		rnd := rand.New(rand.NewPCG(1, uint64(round)))
		a, b := connect()
		mem := a.end.Load().Segment().Exposed()
		var wg sync.WaitGroup
		errs := make(chan error, 4)
		for _, c := range []*Conn{a, b} {
			wg.Go(func() {
				buf := make([]byte, 3000)
				for i := 0; ; i++ {
					if _, err := c.Write(buf[:1+i*97%len(buf)]); err != nil {
						errs <- err
						return
					}
				}
			})
			wg.Go(func() {
				buf := make([]byte, 5000)
				for {
					if _, err := c.Read(buf); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		// Control blocks and queues, where it hurts.
		for range 200 {
			off := 512 + rnd.IntN(4096-512+2*16*128)
			if off%4096 >= 1536 && off < 4096 {
				off = 512 + off%1024
			}
			scribble(mem, off, byte(rnd.Uint32()))
			if rnd.IntN(4) == 0 {
				time.Sleep(time.Duration(rnd.IntN(200)) * time.Microsecond)
			}
		}
		for _, c := range []*Conn{a, b} {
			c.SetDeadline(time.Unix(1, 0))
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Minute):
			t.Fatalf("round %d hangs\n%s\n%s", round, a.Debug(), b.Debug())
		}
		for range 4 {
			if errors.Is(<-errs, syscall.ECONNRESET) {
				resets++
			}
		}
		a.Close()
		b.Close()
		for _, way := range [][2]*Conn{{other, far}, {far, other}} {
			if _, err := way[0].Write([]byte("fine")); err != nil {
				t.Fatal(err)
			}
			var buf [4]byte
			if _, err := io.ReadFull(way[1], buf[:]); err != nil || string(buf[:]) != "fine" {
				t.Fatal(string(buf[:]), err)
			}
		}
	}
	if !other.Stats().Direct() {
		t.Error(other.Stats())
	}
	t.Logf("%d calls ended with ECONNRESET", resets)
}
