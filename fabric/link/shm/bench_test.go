package shm_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
	ishm "exnet/internal/shm"
)

// Half a round trip of a message between two processes that poll. It needs two
// idle cores. The control is in BenchmarkLine.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 64, 120} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := spawn(b, "echo")
			msg := make([]byte, size)
			b.ReportAllocs()
			var m meter
			for b.Loop() {
				if err := p.velo.Send(toPeer(1), msg); err != nil {
					b.Fatal(err)
				}
				for {
					if _, _, ok := p.velo.Peek(); ok {
						break
					}
				}
				p.velo.Advance()
				m.tick()
			}
			m.report(b)
		})
	}
	b.Run("path=line", func(b *testing.B) { // the least that there can be: a word
		seg, err := ishm.Create("line", 4096)
		if err != nil {
			b.Fatal(err)
		}
		p := spawn(b, fmt.Sprintf("line:/proc/%d/fd/%d", os.Getpid(), seg.Fd()))
		var name string
		p.line(b, &name)
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		far, err := ishm.Map(int(f.Fd()), 4096)
		if err != nil {
			b.Fatal(err)
		}
		mine, theirs := &ishm.Words(seg.Bytes(), 0, 1)[0], &far.Memory().Words(0, 1)[0]
		var m meter
		n := uint64(0)
		for b.Loop() {
			n++
			mine.Store(n)
			for theirs.Load() != n {
			}
			m.tick()
		}
		m.report(b)
		runtime.KeepAlive(seg)
		runtime.KeepAlive(far)
	})
}

// Half a round trip between two processes that sleep for each message, beside a
// byte on a socket between the same two.
func BenchmarkWake(b *testing.B) {
	b.Run("path=velo", func(b *testing.B) {
		p := spawn(b, "awake")
		s := newSleeper(p.rig)
		fabrictest.Eventually(b, "mailbox", func() bool { return p.velo.Credits(1, vpid) > 0 })
		msg := make([]byte, 64)
		var m meter
		b.ReportAllocs()
		for b.Loop() {
			if err := p.velo.Send(toPeer(1), msg); err != nil {
				b.Fatal(err)
			}
			if _, ok := s.next(); !ok {
				b.Fatal(p.link.Err())
			}
			p.velo.Advance()
			m.tick()
		}
		m.report(b)
	})
	b.Run("path=socket", func(b *testing.B) {
		x := spawn(b, "bytes").bytes
		buf := make([]byte, 1)
		var m meter
		for b.Loop() {
			if _, err := x.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := x.Read(buf); err != nil {
				b.Fatal(err)
			}
			m.tick()
		}
		m.report(b)
	})
}

// meter takes the time of batches of round trips. On a machine that has other
// things to do the mean says little; the best batch says what the link can do.
type meter struct {
	n       int
	begun   time.Time
	batches []time.Duration
}

const meterBatch = 256

func (m *meter) tick() {
	if m.n++; m.n%meterBatch != 1 {
		return
	}
	now := time.Now()
	if !m.begun.IsZero() && len(m.batches) < cap(m.batches) {
		m.batches = append(m.batches, now.Sub(m.begun))
	} else if m.batches == nil {
		m.batches = make([]time.Duration, 0, 1<<16)
	}
	m.begun = now
}

func (m *meter) report(b *testing.B) {
	if len(m.batches) == 0 {
		return
	}
	slices.Sort(m.batches)
	half := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / meterBatch / 2 }
	b.ReportMetric(half(m.batches[0]), "best-ns/half-rtt")
	b.ReportMetric(half(m.batches[len(m.batches)/2]), "median-ns/half-rtt")
}

// GETs from another process, depth of them under way, beside a plain copy.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		p := spawn(b, fmt.Sprint("serve:", size))
		var nla, sink uint64
		p.line(b, &nla)
		p.line(b, &sink)
		mem, err := p.nic.ATU().Alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		dst, err := p.nic.ATU().Register(vpid, mem, atu.Write)
		if err != nil {
			b.Fatal(err)
		}
		for _, depth := range []int{1, 4} {
			b.Run(fmt.Sprintf("size=%d/depth=%d", size, depth), func(b *testing.B) {
				req := rma.GetReq{Local: dst.NLA(), Remote: atu.NLA(nla), Len: size, Node: 1, VPID: vpid,
					Notify: rma.NotifyCompleter}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				under := 0
				end := func() {
					for {
						n, ok := p.rma.Next()
						if !ok {
							continue
						}
						if n.Status != fabric.StatusOK {
							b.Fatal(n)
						}
						under--
						return
					}
				}
				for b.Loop() {
					if err := p.rma.Get(req); err != nil {
						b.Fatal(err)
					}
					if under++; under == depth {
						end()
					}
				}
				for under > 0 {
					end()
				}
			})
		}
		b.Run(fmt.Sprintf("size=%d/path=copy", size), func(b *testing.B) {
			from := make([]byte, size)
			pattern(from, 1)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(mem, from)
			}
		})
	}
}
