package directsockets_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
)

// pairs makes direct pairs of one listener.
type pairs struct {
	cfg directsockets.Config
	l   net.Listener
}

func newPairs(t testing.TB, cfg directsockets.Config) *pairs {
	t.Helper()
	lc := directsockets.ListenConfig{Config: cfg}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	waitListener(t, cfg.Broker, l.Addr())
	return &pairs{cfg, l}
}

// next returns connected ends, which the caller closes.
func (p *pairs) next(t testing.TB) (c, s *directsockets.Conn) {
	return p.nextOr(t, func(err error) { t.Fatal(err) })
}

// nextOr is next. Where accepting fails it calls failed, and accepts again.
func (p *pairs) nextOr(t testing.TB, failed func(error)) (c, s *directsockets.Conn) {
	t.Helper()
	d := directsockets.Dialer{Config: p.cfg}
	a, err := d.Dial("tcp", p.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.l.Accept()
	for err != nil {
		failed(err)
		b, err = p.l.Accept()
	}
	return a.(*directsockets.Conn), b.(*directsockets.Conn)
}

// transfer sends n bytes of pattern from a to b and checks them, and calls at when
// so many bytes have been written or read.
func transfer(a, b net.Conn, n int64, sizes []int, written, read map[int64]func()) error {
	sent := make(chan error, 1)
	go func() {
		err := func() error {
			buf := make([]byte, 1<<17)
			for off, i := int64(0), 0; off < n; i++ {
				k := min(int64(sizes[i%len(sizes)]), n-off)
				for at := range written { // so that a write ends there
					if at > off {
						k = min(k, at-off)
					}
				}
				if f := written[off]; f != nil {
					f()
				}
				fillPattern(buf[:k], off)
				if _, err := a.Write(buf[:k]); err != nil {
					return fmt.Errorf("write at %d: %w", off, err)
				}
				off += k
			}
			if f := written[n]; f != nil {
				f()
			}
			return a.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if err != nil {
			b.Close()
		}
		sent <- err
	}()
	var off int64
	err := func() error {
		for at := range n + 1 {
			f := read[at]
			if f == nil {
				continue
			}
			for off < at {
				m, err := readPatternAt(b, off, at-off)
				if off += m; err != nil {
					return err
				}
			}
			f()
		}
		m, err := readPatternAt(b, off, 0)
		if off += m; err == nil && off != n {
			err = fmt.Errorf("%d bytes of %d", off, n)
		}
		return err
	}()
	if err != nil {
		a.Close()
	}
	return errors.Join(err, <-sent)
}

// readPatternAt is readPattern for a stream that has come to off.
func readPatternAt(c io.Reader, off, n int64) (sum int64, err error) {
	buf, want := make([]byte, 8000), make([]byte, 8000)
	for n == 0 || sum < n {
		k := int64(len(buf))
		if n > 0 {
			k = min(k, n-sum)
		}
		m, err := c.Read(buf[:k])
		fillPattern(want[:m], off+sum)
		for i := range m {
			if buf[i] != want[i] {
				return sum, fmt.Errorf("byte %d is %#x, not %#x", off+sum+int64(i), buf[i], want[i])
			}
		}
		sum += int64(m)
		if err == io.EOF && n == 0 {
			return sum, nil
		}
		if err != nil {
			return sum, fmt.Errorf("at byte %d: %w", off+sum, err)
		}
	}
	return sum, nil
}

// TestDemoteEverywhere: the sender demotes, the receiver falls back, or both do, after
// every number of bytes, while the stream goes on.
func TestDemoteEverywhere(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true, Slots: 16, Ring: 64 << 10}
	const n = 2600
	sizes := []int{1, 64, 700, 120, 130, 1000, 5} // VELO and RMA
	step := 1
	if testing.Short() || raceEnabled {
		step = 13
	}
	for _, kind := range []string{"sender", "receiver", "both"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newPairs(t, cfg)
			for at := int64(0); at <= n; at += int64(step) {
				c, s := p.next(t)
				makeDirect(t, c, s)
				written, read := map[int64]func(){}, map[int64]func(){}
				if kind != "receiver" {
					written[at] = func() { c.Demote() }
				}
				if kind != "sender" {
					read[at] = func() { s.Demote() }
				}
				if at%2 == 1 { // the client is the receiver
					c, s = s, c
				}
				if err := transfer(c, s, n, sizes, written, read); err != nil {
					t.Fatalf("demoted at %d: %v\n%v\n%v", at, err, c.Stats(), s.Stats())
				}
				c.Close()
				s.Close()
			}
		})
	}
}

// TestDemoteUnderLoad: streams both ways, and both ends demote at any time.
func TestDemoteUnderLoad(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	rounds := 60
	if testing.Short() || raceEnabled {
		rounds = 15
	}
	for _, ring := range []int{64 << 10, 1 << 20} {
		t.Run(fmt.Sprintf("ring=%d", ring), func(t *testing.T) {
			cfg := cfg
			cfg.Ring = ring
			p := newPairs(t, cfg)
			for round := range rounds {
				c, s := p.next(t)
				const n = 4 << 20
				sizes := []int{1 + rand.IntN(100), 1 + rand.IntN(100_000), 1 + rand.IntN(1000), 100}
				var wg sync.WaitGroup
				fail := make(chan error, 2)
				for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
					wg.Go(func() {
						if err := transfer(way[0], way[1], n, sizes, nil, nil); err != nil {
							fail <- err
						}
					})
				}
				for i, conn := range []*directsockets.Conn{c, s} {
					if (round>>i)&1 == 0 {
						wg.Go(func() {
							time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
							conn.Demote()
						})
					}
				}
				timer := time.AfterFunc(testWait, func() {
					t.Errorf("round %d hangs: %v %v\n%v %v", round, c.Stats(), c.Stats().Counters, s.Stats(), s.Stats().Counters)
					c.Close()
					s.Close()
				})
				wg.Wait()
				timer.Stop()
				close(fail)
				for err := range fail {
					t.Errorf("round %d: %v\n%v\n%v", round, err, c.Stats(), s.Stats())
				}
				c.Close()
				s.Close()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestRawDeadline has the deadlines of a connection end Read and Write of its
// SyscallConn, those that have passed and those that pass meanwhile.
func TestRawDeadline(t *testing.T) {
	c, s := directPair(t)
	defer c.Close()
	defer s.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(func(uintptr) bool) error{"read": raw.Read, "write": raw.Write} {
		for _, d := range []time.Duration{-time.Second, 20 * time.Millisecond} {
			if err := c.SetDeadline(time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
			calls := 0
			err := call(func(uintptr) bool { calls++; return false })
			if !errors.Is(err, os.ErrDeadlineExceeded) || d < 0 && calls > 0 {
				t.Errorf("%s, deadline in %v: %v after %d calls", name, d, err, calls)
			}
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := call(func(uintptr) bool { return true }); err != nil {
			t.Errorf("%s without a deadline: %v", name, err)
		}
	}
}
