package segment

import (
	"fmt"
	"sync/atomic"
	"testing"

	"exnet/internal/batchtime"
	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// Half a round trip between two processes that spin.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 64, 480, 1024, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			e := spawn(b, fmt.Sprintf("echo %d", size), Config{}, Tuning{})
			p := make([]byte, size)
			b.ReportAllocs()
			m := batchtime.New(256)
			for b.Loop() {
				if err := sendFull(e, p); err != nil {
					b.Fatal(err)
				}
				if err := recvFull(e, p); err != nil {
					b.Fatal(err)
				}
				m.Tick()
			}
			m.Report(b, 2, "ns/half", batchtime.Nanoseconds)
		})
	}
	b.Run("path=line", func(b *testing.B) { bounce(b, 1) })
	b.Run("path=two-lines", func(b *testing.B) { bounce(b, 2) })
}

// bounce is the control: one or two cache lines between two threads.
func bounce(b *testing.B, lines int) {
	var words [64]atomic.Uint64
	stop := make(chan struct{})
	x, y := &words[16], &words[32]
	go func() {
		pin(1)
		defer close(stop)
		for n := uint64(1); ; n++ {
			for x.Load() != n {
				if x.Load() == 1<<63 {
					return
				}
			}
			if lines > 1 {
				shm.Release(&words[40], words[24].Load())
			}
			shm.Release(y, n)
		}
	}()
	pin(0)
	m := batchtime.New(256)
	n := uint64(0)
	for b.Loop() {
		n++
		if lines > 1 {
			shm.Release(&words[24], n)
		}
		shm.Release(x, n)
		for y.Load() != n {
		}
		if lines > 1 && words[40].Load() != n {
			b.Fatal("order")
		}
		m.Tick()
	}
	x.Store(1 << 63)
	<-stop
	m.Report(b, 2, "ns/half", batchtime.Nanoseconds)
}

// Messages one way.
func BenchmarkRate(b *testing.B) {
	for _, size := range []int{8, 64, 120} {
		for _, slots := range []int{128, 1024} {
			b.Run(fmt.Sprintf("size=%d/slots=%d", size, slots), func(b *testing.B) {
				e := spawn(b, "take 65536", Config{Slots: slots}, Tuning{})
				p := make([]byte, size)
				b.ReportAllocs()
				m := batchtime.New(4096)
				for b.Loop() {
					if err := sendFull(e, p); err != nil {
						b.Fatal(err)
					}
					m.Tick()
				}
				m.Report(b, 1, "M/s", batchtime.PerSecond)
			})
		}
	}
}

// A stream of 64 KiB writes, beside a copy of as much.
func BenchmarkStream(b *testing.B) {
	const size = 64 << 10
	p := make([]byte, size)
	for _, ring := range []int{256 << 10, 1 << 20} {
		for _, chunk := range []int{8 << 10, 16 << 10, 32 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("ring=%d/chunk=%d", ring>>10, chunk>>10), func(b *testing.B) {
				stream(b, "take 65536", p, Config{Ring: ring}, Tuning{Chunk: chunk})
			})
		}
	}
	b.Run("path=lend", func(b *testing.B) { stream(b, "lend 1", p, Config{}, Tuning{}) })
	for _, ring := range []int{128 << 10, 256 << 10, 1 << 20} { // both on one CPU
		b.Run(fmt.Sprintf("path=one-cpu/ring=%d", ring>>10), func(b *testing.B) {
			e := spawn(b, "share 65536", Config{Ring: ring}, Tuning{})
			b.SetBytes(size)
			m := batchtime.New(64)
			for b.Loop() {
				for rest := p; len(rest) > 0; {
					n, err := e.Send(rest)
					if rest = rest[n:]; err == ErrAgain {
						unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
					} else if err != nil {
						b.Fatal(err)
					}
				}
				m.Tick()
			}
			m.Report(b, 1, "GB/s", batchtime.Bandwidth(size))
		})
	}
	b.Run("path=region", func(b *testing.B) { // zero copy: GET
		e := spawn(b, "take 65536", Config{}, Tuning{})
		const pieces = 16
		r := newRegion(b, pieces*size)
		var tickets [pieces]uint64
		b.SetBytes(size)
		b.ReportAllocs()
		m := batchtime.New(64)
		for i := 0; b.Loop(); i++ {
			for t := tickets[i%pieces]; t != 0; {
				if ok, err := e.Taken(t); ok {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
			t, err := e.SendRegion(r, i%pieces*size, size)
			if err != nil {
				b.Fatal(err)
			}
			tickets[i%pieces] = t
			m.Tick()
		}
		m.Report(b, 1, "GB/s", batchtime.Bandwidth(size))
	})
	b.Run("path=copy", func(b *testing.B) {
		pin(0)
		q := make([]byte, size)
		m := batchtime.New(64)
		for b.Loop() {
			copy(q, p)
			m.Tick()
		}
		m.Report(b, 1, "GB/s", batchtime.Bandwidth(size))
	})
}

func stream(b *testing.B, role string, p []byte, c Config, t Tuning) {
	e := spawn(b, role, c, t)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	m := batchtime.New(64)
	for b.Loop() {
		if err := sendFull(e, p); err != nil {
			b.Fatal(err)
		}
		m.Tick()
	}
	m.Report(b, 1, "GB/s", batchtime.Bandwidth(len(p)))
}

// One goroutine is both ends: what the instructions cost, without the way between
// two cores.
func BenchmarkInstructions(b *testing.B) {
	for _, size := range []int{8, 64, 480, 512, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c, s := promoted(b, Config{})
			pin(0)
			p := make([]byte, size)
			b.ReportAllocs()
			m := batchtime.New(256)
			for b.Loop() {
				if n, err := c.Send(p); n != size || err != nil {
					b.Fatal(n, err)
				}
				if n, err := s.Recv(p); n != size || err != nil {
					b.Fatal(n, err)
				}
				m.Tick()
			}
			m.Report(b, 1, "ns", batchtime.Nanoseconds)
		})
	}
}
