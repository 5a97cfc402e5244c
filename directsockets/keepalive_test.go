package directsockets_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

// keepAlive is what a socket says about it.
type keepAlive struct{ On, Idle, Interval, Count int }

// acceptedKeepAlive makes a connection to a listener, and returns what the accepted one has.
func acceptedKeepAlive(t *testing.T, l net.Listener, err error) (k keepAlive) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, o := range []struct {
			level, name int
			to          *int
		}{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, &k.On},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, &k.Idle},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, &k.Interval},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, &k.Count},
		} {
			v, err := unix.GetsockoptInt(int(fd), o.level, o.name)
			if err != nil {
				t.Error(err)
			}
			*o.to = v
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestListenerKeepAlive: accepted connections have the keep-alive that package net gives them,
// whatever the program's settings.
func TestListenerKeepAlive(t *testing.T) {
	setCount := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4) })
	}
	for name, lc := range map[string]net.ListenConfig{
		"default":               {},
		"off":                   {KeepAlive: -1},
		"90 s":                  {KeepAlive: 90 * time.Second},
		"1.5 s":                 {KeepAlive: 1500 * time.Millisecond},
		"configuration":         {KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 8500 * time.Millisecond, Count: 3}},
		"configuration and off": {KeepAlive: -1, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second}},
		"kernel's":              {KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}},
		"too much":              {KeepAlive: 40_000 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Count: 9}},
		"off, by Control":       {KeepAlive: -1, Control: setCount},
		"by Control":            {Control: setCount},
		"by Control, kernel's":  {Control: setCount, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Count: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
			want := acceptedKeepAlive(t, l, err)
			direct := directsockets.ListenConfig{ListenConfig: lc, Config: directsockets.Config{Off: true}}
			for range 2 { // the program's settings are its own
				l, err = direct.Listen(t.Context(), "tcp", "127.0.0.1:0")
				if got := acceptedKeepAlive(t, l, err); got != want {
					t.Errorf("%+v, package net's %+v", got, want)
				}
			}
		})
	}
}

// TestListenerControlFails: what a program's Control says about a socket ends Listen.
func TestListenerControlFails(t *testing.T) {
	lc := directsockets.ListenConfig{}
	lc.Control = func(string, string, syscall.RawConn) error { return syscall.EPERM }
	if l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
		l.Close()
		t.Error("it listens")
	}
}
