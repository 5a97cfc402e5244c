package directsockets_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"exnet/directsockets"
)

// meter takes the time of batches. On a machine that has other things to do the
// mean says little; the best and the median batch say what the path can do.
type meter struct {
	batch   int
	n       int
	begun   time.Time
	batches []time.Duration
}

func newMeter(batch int) *meter {
	return &meter{batch: batch, batches: make([]time.Duration, 0, 1<<16)}
}

func (m *meter) tick() {
	if m.n++; m.n%m.batch != 0 {
		return
	}
	now := time.Now()
	if !m.begun.IsZero() && len(m.batches) < cap(m.batches) {
		m.batches = append(m.batches, now.Sub(m.begun))
	}
	m.begun = now
}

// report gives what one of per is worth, in the best and the median batch.
func (m *meter) report(b *testing.B, per float64, unit string, value func(seconds float64) float64) {
	if len(m.batches) == 0 {
		return
	}
	slices.Sort(m.batches)
	of := func(d time.Duration) float64 { return value(d.Seconds() / float64(m.batch) / per) }
	b.ReportMetric(of(m.batches[0]), "best-"+unit)
	b.ReportMetric(of(m.batches[len(m.batches)/2]), "median-"+unit)
}

func nanoseconds(s float64) float64 { return s * 1e9 }
func perSecond(s float64) float64   { return 1e-6 / s }

func bandwidth(size int) func(float64) float64 {
	return func(s float64) float64 { return float64(size) / s / 1e9 }
}

// paths connect to a server in another process, that does an order.
var paths = []struct {
	name    string
	connect func(b *testing.B, order string) net.Conn
}{
	{"tcp", func(b *testing.B, order string) net.Conn {
		kid := startChild(b, childJob{}, nil)
		c, err := net.Dial("tcp", kid.tell(b, childOrder{Do: order, Dial: "127.0.0.1:0"}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		return c
	}},
	{"ds", func(b *testing.B, order string) net.Conn {
		client := startBroker(b)
		kid := startChild(b, childJob{Broker: brokerPath(b, client)}, nil)
		addr := kid.tell(b, childOrder{Do: order, Dial: "127.0.0.1:0"})
		to, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		waitListener(b, client, to)
		d := directsockets.Dialer{Config: directsockets.Config{Broker: client, Eager: true}}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		eventually(b, "direct", func() bool {
			var buf [1]byte
			if _, err := c.Write(buf[:]); err != nil {
				b.Fatal(err)
			}
			if order == "serve" {
				if _, err := io.ReadFull(c, buf[:]); err != nil {
					b.Fatal(err)
				}
				return c.(*directsockets.Conn).Stats().Direct()
			}
			return c.(*directsockets.Conn).Stats().TX == directsockets.ModeDirect
		})
		return c
	}},
}

// BenchmarkPingPong is half a round trip between two processes.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{64, 1024, 65536} {
		for _, path := range paths {
			b.Run(fmt.Sprintf("size=%d/path=%s", size, path.name), func(b *testing.B) {
				c := path.connect(b, "serve")
				buf := make([]byte, size)
				m := newMeter(64)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
					m.tick()
				}
				m.report(b, 2, "ns/half", nanoseconds)
			})
		}
	}
}

// BenchmarkRate is small messages one way, to another process.
func BenchmarkRate(b *testing.B) {
	for _, path := range paths {
		b.Run("size=64/path="+path.name, func(b *testing.B) {
			c := path.connect(b, "drain")
			buf := make([]byte, 64)
			m := newMeter(2048)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				m.tick()
			}
			m.report(b, 1, "M/s", perSecond)
		})
	}
}

// BenchmarkStream is large writes one way, to another process.
func BenchmarkStream(b *testing.B) {
	for _, path := range paths {
		b.Run("size=65536/path="+path.name, func(b *testing.B) {
			c := path.connect(b, "drain")
			buf := make([]byte, 64<<10)
			m := newMeter(64)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				m.tick()
			}
			m.report(b, 1, "GB/s", bandwidth(len(buf)))
		})
	}
	b.Run("size=65536/path=ds-zcopy", func(b *testing.B) {
		c := paths[1].connect(b, "drain").(*directsockets.Conn)
		buf, err := directsockets.NewBuffer(64 << 10)
		if err != nil {
			b.Fatal(err)
		}
		defer buf.Close()
		m := newMeter(64)
		b.SetBytes(64 << 10)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.WriteBuffer(buf, 0, 64<<10); err != nil {
				b.Fatal(err)
			}
			m.tick()
		}
		m.report(b, 1, "GB/s", bandwidth(64<<10))
	})
}

// BenchmarkCalls is a write and the read of it in one goroutine, on one CPU: what
// the calls themselves cost. cpu-ns/op is the time of the CPU, whatever else runs.
func BenchmarkCalls(b *testing.B) {
	for _, size := range []int{1, 64, 1000, 65536} {
		b.Run(fmt.Sprintf("size=%d/path=ds", size), func(b *testing.B) {
			c, s := directPair(b)
			buf := make([]byte, size)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(s, buf); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkCRR is connect, request, response, close, both ends in this process.
func BenchmarkCRR(b *testing.B) {
	for _, path := range []string{"tcp", "ds"} {
		b.Run("path="+path, func(b *testing.B) {
			var l net.Listener
			var err error
			dial := net.Dial
			if path == "tcp" {
				l, err = net.Listen("tcp", "127.0.0.1:0")
			} else {
				cfg := directsockets.Config{Broker: startBroker(b)}
				lc := directsockets.ListenConfig{Config: cfg}
				l, err = lc.Listen(b.Context(), "tcp", "127.0.0.1:0")
				d := directsockets.Dialer{Config: cfg}
				dial = d.Dial
			}
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				var buf [64]byte
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if n, err := c.Read(buf[:]); err == nil {
						c.Write(buf[:n])
					}
					c.Close()
				}
			}()
			var buf [64]byte
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				c, err := dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write(buf[:]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf[:]); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
