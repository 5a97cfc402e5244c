package directsockets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// foreignWord is what the other connection's bytes are full of, and nobody else's.
const foreignWord = 0xc7c7c7c7_00000000

// TestScribbledAllTheTime: somebody writes into the segment of a connection without a pause, what
// may pass for true and noise, while both ends use registered buffers, or leave direct. All calls
// end, and none gets bytes of another connection, which goes on.
func TestScribbledAllTheTime(t *testing.T) {
	connect := directPairs(t)
	other, far := connect()
	defer far.Close()
	defer other.Close()
	stop := make(chan struct{})
	var others sync.WaitGroup
	for _, way := range [][2]*Conn{{other, far}, {far, other}} {
		others.Go(func() { writeWords(t, way[0], stop) })
		others.Go(func() { readWords(t, way[1]) })
	}
	for _, m := range []struct {
		what string
		use  func(t *testing.T, c *Conn, r *rand.Rand) func() error
	}{
		{"registered buffers", registered},
		{"leaving", leaving},
	} {
		t.Run(m.what, func(t *testing.T) {
			resets := 0
			for round := 0; round < 30 || resets == 0; round++ {
				if round == 1000 {
					t.Fatal("nobody noticed")
				}
				resets += scribbledRound(t, connect, m.use)
			}
			t.Logf("%d calls ended with ECONNRESET", resets)
		})
	}
	close(stop)
	others.Wait()
	if s := other.Stats(); !s.Direct() {
		t.Error(s)
	}
}

// scribbledRound has a connection used while its segment is written to, and returns how many calls
// ended with a reset.
func scribbledRound(t *testing.T, connect func() (a, b *Conn), use func(t *testing.T, c *Conn, r *rand.Rand) func() error) (resets int) {
	t.Helper()
	seed := rand.Uint64()
	a, b := connect()
	mem := a.end.Load().Segment().Exposed()
	stop := make(chan struct{})
	var users, foe sync.WaitGroup
	var mu sync.Mutex
	for i, c := range []*Conn{a, b} {
		for part := range 2 { // one writes mostly, one reads
			r := rand.New(rand.NewPCG(seed, uint64(2*i+part)))
			step := use(t, c, r)
			users.Go(func() {
				for range 200 {
					if err := step(); err != nil {
						mu.Lock()
						defer mu.Unlock()
						if errors.Is(err, syscall.ECONNRESET) {
							resets++
						}
						return
					}
				}
			})
		}
	}
	foe.Go(func() {
		r := rand.New(rand.NewPCG(seed, 99))
		for {
			select {
			case <-stop:
				return
			default:
				scribbleWord(mem, r)
			}
		}
	})
	time.AfterFunc(20*time.Millisecond, func() { // who waits for the other one
		for _, c := range []*Conn{a, b} {
			c.SetDeadline(time.Unix(1, 0))
		}
	})
	done := make(chan struct{})
	go func() {
		users.Wait()
		a.Close()
		b.Close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("seed %d hangs\n%s\n%s", seed, a.Debug(), b.Debug())
	}
	close(stop)
	foe.Wait()
	return resets
}

// A peer that says it fills a sink, and never does, has the reader sleep, not spin.
func TestClaimedSinkSleeps(t *testing.T) {
	a, b := directPairs(t)()
	defer b.Close()
	defer a.Close()
	buf, err := NewBuffer(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	mem := a.end.Load().Segment().Exposed()
	sink, claim := &shm.Words(mem, 512+256, 1)[0], &shm.Words(mem, 512+512+384, 1)[0] // SPEC.md, 2.2
	before, pauses := sinkPause, 0
	defer func() { sinkPause = before }()
	sinkPause = func() {
		if pauses++; pauses == 5 {
			claim.Store(0)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := a.ReadBuffer(buf, 0, 4096)
		done <- err
	}()
	for end := time.Now().Add(time.Minute); sink.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no sink is offered")
		}
	}
	claim.Store(sink.Load())
	a.SetReadDeadline(time.Unix(1, 0))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || pauses != 5 {
		t.Errorf("%v after %d pauses", err, pauses)
	}
}

// registered uses buffers that the peer maps.
func registered(t *testing.T, c *Conn, r *rand.Rand) func() error {
	buf, err := NewBuffer(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buf.Close() })
	return func() (err error) {
		off, n := r.IntN(32<<10), 1+r.IntN(16<<10)
		var got int
		switch r.IntN(7) {
		case 0, 1:
			got, err = c.ReadBuffer(buf, off, n)
			own(t, buf.Bytes()[off:off+got])
		case 2:
			_, err = c.WriteBuffer(buf, off, n)
		case 4, 5:
			_, err = c.Write(buf.Bytes()[off : off+n])
		case 3:
			var p Posted
			if p, err = c.PostBuffer(buf, off, n); err == nil {
				err = c.AwaitPosted(p)
			}
		default:
			p := make([]byte, n)
			got, err = c.Read(p)
			own(t, p[:got])
		}
		return err
	}
}

// leaving gives direct up by what only TCP can do, at any moment.
func leaving(t *testing.T, c *Conn, r *rand.Rand) func() error {
	p := make([]byte, 5000)
	return func() (err error) {
		switch k := r.IntN(600); {
		case k == 0: // it waits for up to a second for a peer that takes nothing
			if f, err := c.File(); err == nil {
				f.Close()
			}
		case k < 10:
			raw, err := c.SyscallConn()
			if err == nil {
				_ = raw.Read(func(uintptr) bool { return true })
			}
		case k < 15:
			err = c.CloseWrite()
		case k < 300:
			_, err = c.Write(p[:1+r.IntN(len(p))])
		default:
			in := make([]byte, 5000)
			var got int
			got, err = c.Read(in)
			own(t, in[:got])
		}
		return err
	}
}

// own fails if p has bytes of the other connection.
func own(t *testing.T, p []byte) {
	if bytes.Contains(p, []byte{0xc7, 0xc7, 0xc7, 0xc7}) {
		t.Error("bytes of another connection")
	}
}

// writeWords writes numbered words until stop, and ends.
func writeWords(t *testing.T, c *Conn, stop chan struct{}) {
	p := make([]byte, 8*200)
	for n := uint64(0); ; {
		for i := 0; i < len(p); i, n = i+8, n+1 {
			binary.LittleEndian.PutUint64(p[i:], foreignWord|n)
		}
		if _, err := c.Write(p); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-stop:
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
			return
		default:
			time.Sleep(50 * time.Microsecond) // the others are to have the processors
		}
	}
}

// readWords checks them until the end.
func readWords(t *testing.T, c *Conn) {
	var w [8]byte
	n := uint64(0)
	for ; ; n++ {
		if _, err := io.ReadFull(c, w[:]); err == io.EOF {
			break
		} else if err != nil {
			t.Error(err)
			return
		}
		if got := binary.LittleEndian.Uint64(w[:]); got != foreignWord|n {
			t.Errorf("word %d is %#x", n, got)
			return
		}
	}
	if n == 0 {
		t.Error("no words")
	}
}

// scribbleWord writes one thing into a segment of 16 slots and 65,536 bytes a ring (SPEC.md, 2).
func scribbleWord(mem []byte, r *rand.Rand) {
	put := func(off int, n uint64) { shm.Words(mem, off&^7, 1)[0].Store(n) }
	side := r.IntN(2)
	control, queue := 512+512*side, 4096+16*128*side
	switch k := r.IntN(3000); {
	case k == 0:
		put(control+8*r.IntN(3), r.Uint64N(100))
	case k == 1: // attention and cpu
		put(control+128, r.Uint64N(128)&r.Uint64N(128)|r.Uint64N(8)<<8)
	case k == 2: // state and flags
		put(control+136, r.Uint64N(4)|r.Uint64N(64)<<32)
	case k == 3:
		put(control+144+8*r.IntN(2), r.Uint64N(40))
	case k < 7: // sinks and claims
		put(control+256+8*r.IntN(17), r.Uint64N(10))
	case k == 7:
		put(512+r.IntN(4096-512+2*16*128), r.Uint64())
	case k == 8: // the whole of a slot
		slot := queue + 128*r.IntN(16)
		put(slot+8, 1+r.Uint64N(3)|r.Uint64N(5000)<<32)
		put(slot+16, r.Uint64N(66000))
		put(slot+24, r.Uint64N(66000))
		tag, n := segment.Tag(1+r.IntN(2)), r.IntN(130)
		if r.IntN(4) == 0 {
			tag, n = segment.Tag(3+r.IntN(6)), []int{28, 8, 0, 20}[r.IntN(4)]
		}
		put(slot, uint64(1+r.IntN(30))|uint64(tag)<<32|uint64(n)<<40)
	case k < 300: // where a sink is: region and length, offset
		put(control+272+8*r.IntN(2), r.Uint64N(130_000)<<(32*r.IntN(2)))
	default: // what a message says: mode or region, length, place, advance
		slot := queue + 128*r.IntN(16)
		switch r.IntN(8) {
		case 0:
			put(slot+8, 1+r.Uint64N(3)|r.Uint64N(66000)<<32)
		case 1:
			put(slot+24, r.Uint64N(66000))
		default:
			put(slot+16, r.Uint64N(80000))
		}
	}
}
