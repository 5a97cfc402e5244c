package directsockets_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

func pattern(n int) []byte {
	b := make([]byte, n)
	fillPattern(b, 0)
	return b
}

func counter(c net.Conn, i int) uint64 { return c.(*directsockets.Conn).Stats().Counters[i] }

// kinds are pairs of connections in different modes.
func kinds(t *testing.T) map[string]func(t *testing.T) (c, s *directsockets.Conn) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	return map[string]func(t *testing.T) (c, s *directsockets.Conn){
		"direct": func(t *testing.T) (c, s *directsockets.Conn) {
			c, s = pair(t, cfg, cfg)
			makeDirect(t, c, s)
			mustBeDirect(t, c, s)
			return c, s
		},
		"lazy": func(t *testing.T) (c, s *directsockets.Conn) {
			lazy := directsockets.Config{Broker: cfg.Broker}
			return pair(t, lazy, lazy)
		},
		"tcp": func(t *testing.T) (c, s *directsockets.Conn) {
			return pair(t, directsockets.Config{Off: true}, directsockets.Config{Off: true})
		},
		"demoted": func(t *testing.T) (c, s *directsockets.Conn) {
			c, s = pair(t, cfg, cfg)
			makeDirect(t, c, s)
			if err := c.Demote(); err != nil {
				t.Fatal(err)
			}
			return c, s
		},
	}
}

func TestReadFromWriteTo(t *testing.T) {
	data := pattern(5<<20 + 12345)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sources := map[string]func(t *testing.T) io.Reader{
		"quick": func(*testing.T) io.Reader { return io.LimitReader(bytes.NewReader(data), int64(len(data))) },
		"bytes": func(*testing.T) io.Reader { return struct{ io.Reader }{bytes.NewReader(data)} },
		"slow":  func(*testing.T) io.Reader { return iotest.HalfReader(struct{ io.Reader }{bytes.NewReader(data)}) },
		"file": func(t *testing.T) io.Reader {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		},
		"part": func(t *testing.T) io.Reader {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return io.LimitReader(f, int64(len(data)))
		},
	}
	for kind, mk := range kinds(t) {
		for name, source := range sources {
			t.Run(kind+"/"+name, func(t *testing.T) {
				c, s := mk(t)
				sent := make(chan error, 1)
				go func() {
					n, err := io.Copy(c, source(t))
					if err == nil && n != int64(len(data)) {
						err = errors.New("short")
					}
					c.CloseWrite()
					sent <- err
				}()
				var got bytes.Buffer
				if _, err := io.Copy(struct{ io.Writer }{&got}, s); err != nil {
					t.Error(err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
				if !bytes.Equal(got.Bytes(), data) {
					t.Errorf("%d bytes differ from %d", got.Len(), len(data))
				}
			})
		}
	}
}

// TestReadFromClosed: Close does not wait for who reads, and ends the copy.
func TestReadFromClosed(t *testing.T) {
	for kind, mk := range kinds(t) {
		t.Run(kind, func(t *testing.T) {
			c, s := mk(t)
			r, w := tcpPair(t)
			copied := make(chan error, 2)
			go func() { _, err := io.Copy(c, r); copied <- err }()
			if _, err := w.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			var buf [5]byte
			if _, err := io.ReadFull(s, buf[:]); err != nil || string(buf[:]) != "hello" {
				t.Fatal(string(buf[:]), err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if n, err := s.Read(buf[:]); err != io.EOF {
				t.Error(n, err)
			}
			w.Write([]byte("more"))
			if err := <-copied; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			w.Close()
		})
	}
}

// slowWriter tells when it is called, and waits.
type slowWriter struct{ called, goOn chan struct{} }

func (w slowWriter) Write(p []byte) (int, error) {
	before := bytes.Clone(p)
	w.called <- struct{}{}
	<-w.goOn
	if !bytes.Equal(p, before) {
		return 0, errors.New("what was lent has changed")
	}
	return len(p), nil
}

// TestWriteToClosed: what was lent stays as it is after Close.
func TestWriteToClosed(t *testing.T) {
	c, s := directPair(t)
	if _, err := c.Write(pattern(100_000)); err != nil {
		t.Fatal(err)
	}
	w := slowWriter{make(chan struct{}), make(chan struct{})}
	copied := make(chan error, 1)
	go func() { _, err := s.WriteTo(w); copied <- err }()
	<-w.called
	s.Close()
	c.Close()
	close(w.goOn)
	if err := <-copied; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestBuffers(t *testing.T) {
	const n = 3<<20 + 777
	for kind, mk := range kinds(t) {
		for _, mode := range []string{"write", "read", "both", "post"} {
			t.Run(kind+"/"+mode, func(t *testing.T) {
				c, s := mk(t)
				out, err := directsockets.NewBuffer(n)
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				in, err := directsockets.NewBuffer(300_000)
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				sent := make(chan error, 1)
				go func() {
					err := func() error {
						var posts posts
						for off := 0; off < n; {
							k := min(200_000, n-off)
							p := out.Bytes()[:k]
							if mode == "post" {
								p = posts.place(out, off, k)
							}
							fillPattern(p, int64(off))
							var err error
							switch mode {
							case "read":
								k, err = c.Write(p)
							case "post":
								k, err = posts.write(c, out, off, p)
							default:
								k, err = c.WriteBuffer(out, 0, k)
							}
							if err != nil {
								return err
							}
							off += k
						}
						return c.CloseWrite()
					}()
					sent <- err
				}()
				var got []byte
				for {
					var k int
					if mode == "write" {
						k, err = s.Read(in.Bytes())
					} else {
						k, err = s.ReadBuffer(in, 0, len(in.Bytes()))
					}
					got = append(got, in.Bytes()[:k]...)
					if err != nil {
						break
					}
				}
				if err != io.EOF {
					t.Error(err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
				if !bytes.Equal(got, pattern(n)) {
					t.Errorf("%d bytes differ from %d", len(got), n)
				}
				if z := counter(c, segment.ZCopySent); kind == "direct" && mode != "read" && z == 0 {
					t.Error("nothing went without a copy")
				}
			})
		}
	}
}

// posts writes pieces that each have a place of their own, three at a time.
type posts struct{ ahead []directsockets.Posted }

const postSize = 200_000

func (*posts) place(b *directsockets.Buffer, off, k int) []byte {
	return b.Bytes()[off/postSize%3*postSize:][:k]
}

// write posts what place has returned; the next place is free afterwards.
func (w *posts) write(c *directsockets.Conn, b *directsockets.Buffer, off int, p []byte) (int, error) {
	posted, err := c.PostBuffer(b, off/postSize%3*postSize, len(p))
	if err != nil {
		return posted.N, err
	}
	if w.ahead = append(w.ahead, posted); len(w.ahead) == 3 {
		err = c.AwaitPosted(w.ahead[0])
		w.ahead = w.ahead[1:]
	}
	return posted.N, err
}

// TestPostBuffer: posts do not wait for a reader until the queue is full, the wait
// for one ends at the deadline, and who demotes then loses nothing.
func TestPostBuffer(t *testing.T) {
	c, s := directPair(t)
	const size, count = 10_000, 100
	b, err := directsockets.NewBuffer(size * count)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	fillPattern(b.Bytes()[:size*count], 0)
	var last directsockets.Posted
	for i := range count {
		if last, err = c.PostBuffer(b, i*size, size); err != nil || last.N != size {
			t.Fatal(last, err)
		}
	}
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if err := c.AwaitPosted(last); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("before anything was read: %v", err)
	}
	c.SetWriteDeadline(time.Time{})
	const first = 30 * size
	if n, err := readPattern(s, first); err != nil {
		t.Fatal(n, err)
	}
	fallenBack := make(chan error, 1)
	go func() { fallenBack <- s.Demote() }()
	taken := make(chan error, 1)
	go func() { taken <- c.AwaitPosted(last) }()
	rest := make([]byte, size*count-first)
	if _, err := io.ReadFull(s, rest); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rest, b.Bytes()[first:size*count]) {
		t.Error("the rest differs")
	}
	if err := errors.Join(<-fallenBack, <-taken); err != nil {
		t.Error(err)
	}
}

// TestSink: who waits with a Buffer gets the bytes put there.
func TestSink(t *testing.T) {
	c, s := directPair(t)
	in, err := directsockets.NewBuffer(300_000)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for i := range 20 {
		size := []int{100_000, 500, 100, 299_999}[i%4] // 100 goes as VELO
		sleeps := counter(s, segment.Sleeps)
		before := counter(c, segment.ZCopySent)
		got := make(chan int, 1)
		go func() {
			n, err := s.ReadBuffer(in, 1, 299_999)
			if err != nil {
				t.Error(err)
			}
			got <- n
		}()
		eventually(t, "the reader sleeps", func() bool { return counter(s, segment.Sleeps) > sleeps })
		data := pattern(size)
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		n := <-got
		if !bytes.Equal(in.Bytes()[1:1+n], data[:n]) {
			t.Fatal("differs")
		}
		if z := counter(c, segment.ZCopySent) - before; size > 480 && z != uint64(size) {
			t.Errorf("%d bytes of %d went without a copy", z, size)
		}
		if _, err := io.ReadFull(s, make([]byte, size-n)); err != nil {
			t.Fatal(err)
		}
	}
	// A sink that nothing came for is withdrawn.
	s.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := s.ReadBuffer(in, 0, 10); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(n, err)
	}
	s.SetReadDeadline(time.Time{})
	if _, err := c.Write(pattern(50_000)); err != nil {
		t.Fatal(err)
	}
	if n, err := readPattern(s, 50_000); err != nil {
		t.Error(n, err)
	}
}

// tcpPair is two ends of a TCP connection.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return connectTo(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
}
