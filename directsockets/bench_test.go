package directsockets_test

import (
	"io"
	"net"
	"testing"
)

// tcpPair is two ends of a TCP connection over the loopback, the control.
func tcpPair(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			tb.Error(err)
		}
		accepted <- c
	}()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	b = <-accepted
	tb.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

var paths = []struct {
	name string
	pair func(testing.TB) (net.Conn, net.Conn)
}{
	{"tcp", tcpPair},
	{"ds", func(tb testing.TB) (net.Conn, net.Conn) { c, s := directPair(tb); return c, s }},
}

// BenchmarkPingPong is a round trip of 64 bytes.
func BenchmarkPingPong(b *testing.B) {
	for _, path := range paths {
		b.Run("path="+path.name, func(b *testing.B) {
			c, s := path.pair(b)
			go func() {
				var buf [64]byte
				for {
					if _, err := io.ReadFull(s, buf[:]); err != nil {
						return
					}
					if _, err := s.Write(buf[:]); err != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			var buf [64]byte
			for b.Loop() {
				if _, err := c.Write(buf[:]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream is one-way writes of a size.
func BenchmarkStream(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"64", 64}, {"4K", 4 << 10}, {"64K", 64 << 10}} {
		for _, path := range paths {
			b.Run("size="+size.name+"/path="+path.name, func(b *testing.B) {
				c, s := path.pair(b)
				done := make(chan int64, 1)
				go func() {
					var sum int64
					buf := make([]byte, 64<<10)
					for {
						n, err := s.Read(buf)
						if sum += int64(n); err != nil {
							done <- sum
							return
						}
					}
				}()
				b.SetBytes(int64(size.n))
				b.ReportAllocs()
				buf := make([]byte, size.n)
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
				if n := <-done; n < int64(b.N)*int64(size.n) {
					b.Fatalf("%d bytes arrived of %d", n, int64(b.N)*int64(size.n))
				}
			})
		}
	}
}
