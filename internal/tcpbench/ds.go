package tcpbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
)

// Direct is direct sockets (package directsockets), with TCP over the kernel's
// sockets as their shadow. Spec.Broker is their broker's socket.
const Direct Transport = "ds"

func init() { transports[Direct] = transport{listen: listenDirect, dial: dialDirect} }

// brokerTime is how long a broker and what it announces may take; only one that hangs takes as
// long.
const brokerTime = 30 * time.Second

// directConfig is what the direct sockets of a worker have in common.
func (j job) directConfig() (directsockets.Config, error) {
	client, err := client.Dial(client.Config{Path: j.Broker, Program: "dsbench"})
	if err != nil {
		return directsockets.Config{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), brokerTime)
	defer cancel()
	if err := client.Wait(ctx); err != nil {
		return directsockets.Config{}, errors.Join(fmt.Errorf("broker of direct sockets: %w", err), client.Close())
	}
	return directsockets.Config{Off: j.Plain, Broker: client}, nil
}

// awaitListener waits until the broker says that there is a direct listener.
func (j job) awaitListener(c *client.Client, port uint16) error {
	if j.Plain {
		return nil
	}
	for deadline := time.Now().Add(brokerTime); !c.Listener(port); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the broker knows of no direct listener at port %d", port)
		}
	}
	return nil
}

type directListener struct {
	*directsockets.Listener
	cfg directsockets.Config
	j   job
}

func listenDirect(j job) (listener, netip.AddrPort, error) {
	cfg, err := j.directConfig()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	lc := directsockets.ListenConfig{Config: cfg}
	lc.Control = j.socketOptions().setOptions
	l, err := lc.Listen(context.Background(), "tcp", j.Address.String())
	if err != nil {
		return nil, netip.AddrPort{}, errors.Join(fmt.Errorf("listening on %v: %w", j.Address, err), cfg.Broker.Close())
	}
	d := &directListener{l.(*directsockets.Listener), cfg, j}
	addr := d.Addr().(*net.TCPAddr).AddrPort()
	if err := j.awaitListener(cfg.Broker, addr.Port()); err != nil {
		return nil, addr, errors.Join(err, d.Close())
	}
	return d, netip.AddrPortFrom(j.Address.Addr(), addr.Port()), nil
}

func (l *directListener) accept() (conn, error) {
	c, err := l.Accept()
	if err != nil {
		return nil, fmt.Errorf("accepting a connection: %w", err)
	}
	return l.j.directConn(c), nil
}

func (l *directListener) Close() error { return errors.Join(l.Listener.Close(), l.cfg.Broker.Close()) }

// dialDirect makes a connection. Those of a worker share the client of the broker,
// which ends with the worker.
func dialDirect(j job) (conn, error) {
	d, err := j.dialerFor()
	if err != nil {
		return nil, err
	}
	c, err := d.Dial("tcp", j.Address.String())
	if err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", j.Address, err)
	}
	return j.directConn(c), nil
}

// dialerFor returns the worker's dialer.
func (j job) dialerFor() (*directsockets.Dialer, error) {
	j.shared.mu.Lock()
	defer j.shared.mu.Unlock()
	if j.shared.dialer != nil {
		return j.shared.dialer, nil
	}
	cfg, err := j.directConfig()
	if err != nil {
		return nil, err
	}
	if err := j.awaitListener(cfg.Broker, j.Address.Port()); err != nil {
		return nil, errors.Join(err, cfg.Broker.Close())
	}
	d := &directsockets.Dialer{Config: cfg}
	d.Dialer.Control = j.socketOptions().setOptions
	j.shared.dialer = d
	return d, nil
}

// directConn is a conn over direct sockets.
type directConn struct {
	*directsockets.Conn
	oneWay, sends bool // the job's
}

func (j *job) directConn(c net.Conn) *directConn {
	return &directConn{c.(*directsockets.Conn), j.oneWay(), j.isSending()}
}

func (c *directConn) noDelay() error      { return nil } // as package net has it
func (c *directConn) resetOnClose() error { return c.SetLinger(0) }

// settled reports whether what this end has to carry goes through memory, or never will.
func (c *directConn) settled() bool {
	s := c.Stats()
	modes := []directsockets.Mode{s.RX, s.TX}
	if c.oneWay && c.sends {
		modes = modes[1:]
	} else if c.oneWay {
		modes = modes[:1]
	}
	for _, m := range modes {
		if m == directsockets.ModeTCP && !forGood[s.Reason] {
			return false
		}
	}
	return true
}

// forGood has the reasons for which a connection on TCP stays there.
var forGood = map[directsockets.Reason]bool{
	directsockets.ReasonRule: true, directsockets.ReasonNotIncluded: true, directsockets.ReasonNoRule: true, directsockets.ReasonVersion: true,
}

// shadow returns how many bytes have gone over TCP, in both directions.
func (c *directConn) shadow() (bytes uint64, why string) {
	s := c.Stats()
	return s.Counters[segment.SentShadow] + s.Counters[segment.ReceivedShadow], s.String()
}

// overTCP returns how many bytes TCP has carried, in both directions, as the kernel counts them:
// each once, however often it was sent.
func (c *directConn) overTCP() (bytes uint64) {
	shadow, ok := c.Shadow().(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := shadow.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // it is open as long as c is
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes = info.Bytes_acked + info.Bytes_received
		}
	})
	return bytes
}
