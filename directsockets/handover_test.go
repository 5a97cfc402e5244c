package directsockets_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/internal/netns/netnstest"
)

// taking is how a program takes the descriptor of a connection to read what is left, and returns
// what it got and how that ended.
var taking = map[string]func(c *directsockets.Conn) ([]byte, error){
	"file": func(c *directsockets.Conn) ([]byte, error) {
		f, err := c.File()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		conn, err := net.FileConn(f)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		c.Close() // as who passes a connection on
		conn.SetReadDeadline(time.Now().Add(testWait))
		return io.ReadAll(conn)
	},
	"raw": func(c *directsockets.Conn) (got []byte, err error) {
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		c.SetReadDeadline(time.Now().Add(testWait))
		buf := make([]byte, 100_000)
		for {
			n := 0
			rawErr := raw.Read(func(fd uintptr) bool {
				n, err = syscall.Read(int(fd), buf)
				return err != syscall.EAGAIN
			})
			if got = append(got, buf[:max(n, 0)]...); n <= 0 {
				return got, errors.Join(err, rawErr)
			}
		}
	},
	"read": func(c *directsockets.Conn) ([]byte, error) { // after Demote
		c.Demote()
		c.SetReadDeadline(time.Now().Add(testWait))
		return io.ReadAll(c)
	},
}

// TestTakeDescriptor: whatever the peer does, who takes the descriptor reads all that it sent, and
// then an end of file.
func TestTakeDescriptor(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, peer := range []string{"quiet", "reads", "half-closed", "closed", "demoted", "demoted and closed"} {
		for how, take := range taking {
			for _, n := range []int64{0, 5, 1000, 700_000} {
				if peer == "quiet" && how == "read" && n > 0 {
					continue // Read waits for the peer here, as Demote says
				}
				t.Run(peer+"/"+how, func(t *testing.T) {
					c, s := directPair(t)
					defer c.Close()
					defer s.Close()
					if n > 0 {
						if err := writePattern(s, n); err != nil {
							t.Fatal(err)
						}
					}
					total := n
					last := func() { // the rest comes when the descriptor has been taken
						total += 10
						tail := make([]byte, 10)
						fillPattern(tail, n)
						go func() {
							for c.Stats().Reason == directsockets.ReasonNone {
								time.Sleep(time.Millisecond)
							}
							s.Write(tail)
							s.CloseWrite()
						}()
					}
					switch peer {
					case "quiet":
						last()
					case "reads":
						go s.Read(make([]byte, 1))
						last()
					case "half-closed":
						s.CloseWrite()
					case "closed":
						s.Close()
					case "demoted":
						s.Demote()
						last()
					case "demoted and closed":
						s.Demote()
						s.Close()
					}
					got, err := take(c)
					if err != nil || int64(len(got)) != total {
						t.Fatalf("%d bytes of %d, %v; %v\n%s", len(got), total, err, c.Stats(), c.Debug())
					}
					for i, b := range got {
						if b != patternAt(int64(i)) {
							t.Fatalf("byte %d differs", i)
						}
					}
				})
			}
		}
	}
}

// TestFile: while the peer is there and looks, who has a descriptor has TCP.
func TestFile(t *testing.T) {
	c, s := directPair(t)
	if err := writePattern(c, 20_000); err != nil {
		t.Fatal(err)
	}
	go c.Read(make([]byte, 1)) // somebody who hears of it fell back
	off, err := readPattern(s, 12345)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, tcp := conn.(*net.TCPConn); tcp {
		if got := s.Stats(); got.RX != directsockets.ModeDemoted || got.TX != directsockets.ModeDemoted {
			t.Error(got)
		}
	} else {
		t.Log("the peer did not look in time")
	}
	conn.SetReadDeadline(time.Now().Add(testWait))
	if _, err := readPatternAt(conn, off, 20_000-off); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}
