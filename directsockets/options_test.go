package directsockets_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

func TestOptions(t *testing.T) {
	for name, mk := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			c, s := mk(t)
			for what, err := range map[string]error{
				"SetNoDelay":         c.SetNoDelay(true),
				"SetKeepAlive":       c.SetKeepAlive(true),
				"SetKeepAlivePeriod": c.SetKeepAlivePeriod(time.Minute),
				"SetKeepAliveConfig": c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}),
				"SetReadBuffer":      c.SetReadBuffer(100_000),
				"SetWriteBuffer":     c.SetWriteBuffer(100_000),
				"SetLinger":          c.SetLinger(-1),
			} {
				if err != nil {
					t.Error(what, err)
				}
			}
			if c.LocalAddr().String() != s.RemoteAddr().String() || c.RemoteAddr().String() != s.LocalAddr().String() {
				t.Error(c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
			}
			// Options leave the connection where it is.
			before := c.Stats()
			raw, err := c.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(fd uintptr) {
				if _, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
			if got := c.Stats(); got.RX != before.RX || got.TX != before.TX {
				t.Error(got)
			}
			if !strings.Contains(before.String(), "rx ") {
				t.Error(before)
			}
		})
	}
}

// TestRaw: who reads the descriptor himself gets what was under way.
func TestRaw(t *testing.T) {
	c, s := directPair(t)
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	go s.Read(make([]byte, 1)) // somebody who hears of it fell back
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var buf [5]byte
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		k, err := syscall.Read(int(fd), buf[n:])
		n += max(k, 0)
		return err != syscall.EAGAIN && n == len(buf)
	})
	if err != nil || string(buf[:n]) != "hello" {
		t.Error(string(buf[:n]), err)
	}
	if got := c.Stats(); got.RX != directsockets.ModeDemoted || got.Reason != directsockets.ReasonUnsupported {
		t.Error(got)
	}
}

func TestHalfClose(t *testing.T) {
	for name, mk := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			c, s := mk(t)
			if _, err := c.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
			got, err := io.ReadAll(s)
			if err != nil || string(got) != "last" {
				t.Error(string(got), err)
			}
			if _, err := s.Write([]byte("answer")); err != nil {
				t.Fatal(err)
			}
			var buf [6]byte
			if _, err := io.ReadFull(c, buf[:]); err != nil || string(buf[:]) != "answer" {
				t.Error(string(buf[:]), err)
			}
			// CloseRead ends a Read that sleeps.
			ended := make(chan error, 1)
			go func() { _, err := c.Read(buf[:]); ended <- err }()
			time.Sleep(5 * time.Millisecond)
			if err := c.CloseRead(); err != nil {
				t.Error(err)
			}
			select {
			case err := <-ended:
				if err != io.EOF {
					t.Error(err)
				}
			case <-time.After(testWait):
				t.Fatal("Read does not end")
			}
		})
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []directsockets.Config{{Slots: 17}, {Ring: 1000}, {Chunk: -1}, {UpgradeSends: -1}, {Threshold: -5}, {UpgradeBytes: -1}, {MaxRing: -1}, {MaxSlots: -1}} {
		d := directsockets.Dialer{Config: cfg}
		if _, err := d.Dial("tcp", "127.0.0.1:1"); !errors.Is(err, directsockets.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	datagrams, err := directsockets.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	if _, ok := datagrams.(*directsockets.UDPConn); !ok {
		t.Errorf("%T", datagrams)
	}
	// Networks that are neither TCP nor UDP are net's.
	path := t.TempDir() + "/s"
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := directsockets.Dial("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(*net.UnixConn); !ok {
		t.Errorf("%T", c)
	}
	var lc directsockets.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, ok := l.(*net.UnixListener); !ok {
		t.Errorf("%T", l)
	}
	for _, c := range []net.Conn{c, datagrams} {
		if _, err := directsockets.NewConn(c, false, directsockets.Config{}); !errors.Is(err, directsockets.ErrConfig) {
			t.Errorf("%T: %v", c, err)
		}
	}
}
