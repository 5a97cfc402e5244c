package directsockets_test

import (
	"fmt"
	"io"
	"net"
	"testing"

	"exnet/directsockets"
	"exnet/internal/batchtime"
)

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
				m := batchtime.New(64)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
					m.Tick()
				}
				m.Report(b, 2, "ns/half", batchtime.Nanoseconds)
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
			m := batchtime.New(2048)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				m.Tick()
			}
			m.Report(b, 1, "M/s", batchtime.PerSecond)
		})
	}
}

// BenchmarkStream is large writes one way, to another process.
func BenchmarkStream(b *testing.B) {
	for _, path := range paths {
		b.Run("size=65536/path="+path.name, func(b *testing.B) {
			c := path.connect(b, "drain")
			buf := make([]byte, 64<<10)
			m := batchtime.New(64)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				m.Tick()
			}
			m.Report(b, 1, "GB/s", batchtime.Bandwidth(len(buf)))
		})
	}
	b.Run("size=65536/path=ds-zcopy", func(b *testing.B) {
		c := paths[1].connect(b, "drain").(*directsockets.Conn)
		buf, err := directsockets.NewBuffer(64 << 10)
		if err != nil {
			b.Fatal(err)
		}
		defer buf.Close()
		m := batchtime.New(64)
		b.SetBytes(64 << 10)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.WriteBuffer(buf, 0, 64<<10); err != nil {
				b.Fatal(err)
			}
			m.Tick()
		}
		m.Report(b, 1, "GB/s", batchtime.Bandwidth(64<<10))
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

// BenchmarkCRR is connect, request, response, close, both ends in this process. The path none
// is TCP without request and response: what is left of a connection for whoever carries these
// two for nothing.
func BenchmarkCRR(b *testing.B) {
	for _, path := range []string{"tcp", "none", "ds"} {
		b.Run("path="+path, func(b *testing.B) {
			var l net.Listener
			var err error
			dial := net.Dial
			if path != "ds" {
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
					if path != "none" {
						if n, err := c.Read(buf[:]); err == nil {
							c.Write(buf[:n])
						}
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
				if path == "none" {
					if _, err := c.Read(buf[:]); err != io.EOF {
						b.Fatalf("a read of a connection that the server has closed: %v", err)
					}
				} else if _, err := c.Write(buf[:]); err != nil {
					b.Fatal(err)
				} else if _, err := io.ReadFull(c, buf[:]); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
