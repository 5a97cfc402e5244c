package directsockets

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What package net sets where a net.KeepAliveConfig says nothing.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 9
)

// inheritKeepAlive has the listener that lc makes hand its keep-alive to the connections that it
// accepts, as the kernel does with a listening socket's options: package net sets the same ones on
// each, four system calls that a short connection does not earn back.
func inheritKeepAlive(lc *net.ListenConfig) {
	cfg := lc.KeepAliveConfig
	if !cfg.Enable {
		if lc.KeepAlive < 0 {
			return
		}
		cfg = net.KeepAliveConfig{Enable: true, Idle: lc.KeepAlive}
	}
	program := lc.Control
	lc.KeepAlive, lc.KeepAliveConfig = -1, net.KeepAliveConfig{}
	lc.Control = func(network, address string, c syscall.RawConn) error {
		if program != nil {
			if err := program(network, address, c); err != nil {
				return err
			}
		}
		return c.Control(func(fd uintptr) { setKeepAlive(int(fd), cfg) })
	}
}

// setKeepAlive sets what cfg says, which is enabled, as package net does: an error ends it, and
// does not end the connection.
func setKeepAlive(fd int, cfg net.KeepAliveConfig) {
	seconds := func(d, none time.Duration) int {
		if d == 0 {
			d = none
		}
		if d < 0 {
			return -1
		}
		return int((d + time.Second - 1) / time.Second)
	}
	count := cfg.Count
	if count == 0 {
		count = keepAliveCount
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(cfg.Idle, keepAliveIdle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(cfg.Interval, keepAliveInterval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count},
	} {
		if o.value >= 0 && unix.SetsockoptInt(fd, o.level, o.name, o.value) != nil {
			return
		}
	}
}
