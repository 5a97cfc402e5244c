package directsockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
)

// Conn is a TCP connection, the shadow, whose bytes go through shared memory once its two ends have
// found each other. It implements net.Conn and the further methods of net.TCPConn.
//
// Concurrency: all methods may be called from many goroutines.
type Conn struct {
	rx rxHalf

	// The two directions have no cache line in common with what changes or is read between them
	// while bytes are direct: what stays as it is lies on both sides of that.
	key wire.Key

	shadow net.Conn
	tcp    kernelSocket    // the shadow, if it is the kernel's
	raw    syscall.RawConn // of tcp
	cfg    *Config
	count  *segment.Counters

	end            atomic.Pointer[segment.End] // nil: no segment that tx could be promoted to
	life           atomic.Uint32               // a lifeState; onLife writes it
	none           atomic.Uint32               // see broker.Client.MayHaveOffer
	sends          atomic.Uint32               // on the shadow
	sub            atomic.Pointer[substitute]  // what the program has in place of the shadow; nil: the shadow
	fallenBackSeen atomic.Bool                 // tx knows that the peer fell back
	side           segment.Side

	mu      sync.Mutex
	closed  bool                    // guarded by mu
	linger  int                     // guarded by mu; of SetLinger, or 0 of resetOnClose
	retired bool                    // guarded by mu; final or total is there
	why     Reason                  // guarded by mu
	modes   [2]Mode                 // guarded by mu; of rx and tx
	tries   uint8                   // guarded by mu; offers that nobody claimed
	pending *upgrade                // guarded by mu; what wantInstall is about
	handing sync.Mutex              // of handOver
	waited  atomic.Int64            // for how long handOver has waited, ns
	refusal atomic.Pointer[refusal] // of the last offer
	bucket  uint32

	local  net.Addr // of shadow, which may make a new one for each call
	remote net.Addr
	entry  connstats.Entry
	broker *client.Client           // nil: none
	from   atomic.Pointer[Listener] // that stays announced for this connection; nil: none
	retry  atomic.Int64             // not before this time, Unix ns
	final  *Stats                   // guarded by mu; after Close; nil: total is all there is to say
	total  [2]uint64                // guarded by mu; sent and received on the shadow, after Close

	tx txHalf

	shutError error       // guarded by mu; what the kernel said to the last CloseWrite
	resetTold atomic.Bool // a call of the program's has said that the connection was reset
}

// kernelSocket is a shadow that is a socket of the kernel's, such as a *net.TCPConn.
type kernelSocket interface {
	syscall.Conn
	File() (*os.File, error)
}

// NewConn makes a Conn of a TCP connection that was made by other means, such as a TCP stack in
// user space, and on which nothing has been sent or received yet. The Conn takes it over. server
// says that it was accepted, not dialled. Networks other than TCP are refused.
func NewConn(shadow net.Conn, server bool, config Config) (*Conn, error) {
	cfg, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	side := segment.Client
	if server {
		side = segment.Server
	}
	if _, ok := shadow.LocalAddr().(*net.TCPAddr); !ok {
		return nil, fmt.Errorf("%w: a shadow on %v", ErrConfig, shadow.LocalAddr().Network())
	}
	return newConn(shadow, side, cfg, cfg.brokerClient()), nil
}

// newConn makes a Conn, which takes the shadow over.
func newConn(shadow net.Conn, side segment.Side, cfg *Config, client *client.Client) *Conn {
	c := &Conn{shadow: shadow, cfg: cfg, side: side, broker: client, modes: [2]Mode{ModeTCP, ModeTCP}}
	c.linger = -1
	c.local, c.remote = shadow.LocalAddr(), shadow.RemoteAddr()
	c.rx.init()
	c.tx.init()
	local, remote := addrPort(c.local), addrPort(c.remote)
	c.key = wire.Key{Client: local, Server: remote}
	if side == segment.Server {
		c.key = wire.Key{Client: remote, Server: local}
	}
	c.bucket = c.key.Bucket()
	fd := -1
	if tcp, ok := shadow.(kernelSocket); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			c.tcp, c.raw = tcp, raw
			// In a program that exn-go built the shadow may be direct below: it goes back to
			// TCP, which this Conn takes over. Elsewhere Write is no more than Control.
			_ = raw.Write(func(d uintptr) bool { fd = int(d); return true })
			if fd < 0 { // its deadline has passed
				_ = raw.Control(func(d uintptr) { fd = int(d) }) // or it is closed already
			}
		}
	}
	c.classify()
	info := connstats.EntryInfo{Key: c.key, Server: side == segment.Server, FD: fd, Since: time.Now()}
	if client != nil {
		c.entry = client.Stats().Alloc(info)
	} else {
		c.entry = (*connstats.Table)(nil).Alloc(info)
	}
	c.count = (*segment.Counters)(c.entry.Counters())
	why := cfg.whyTCP(side, c.key.Server, false)
	switch {
	case cfg.Off:
		why = ReasonRule
	case why == ReasonNone && client == nil:
		why = ReasonNoBroker
	}
	if why != ReasonNone {
		c.onLife(lifeExclude)
		c.setReason(why)
		return c
	}
	c.onLife(lifeBegin)
	if side == segment.Server {
		c.setReason(ReasonNoOffer)
	} else {
		c.setReason(ReasonNotYet)
	}
	if cfg.Eager {
		c.startSetup(0)
	}
	c.awaitSettled(cfg.Wait)
	return c
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
	}
	return netip.AddrPort{}
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.rx.half, &c.tx.half) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.rx.half) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.tx.half) }

func (c *Conn) setDeadlines(t time.Time, halves ...*half) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.setError()
	}
	if s := c.sub.Load(); s != nil {
		for _, h := range halves {
			set := s.conn.SetReadDeadline
			if h == &c.tx.half {
				set = s.conn.SetWriteDeadline
			}
			_ = set(t) // it is open
		}
		return nil
	}
	for _, h := range halves {
		c.setDeadline(h, t)
	}
	return nil
}

// CloseRead ends the inbound direction for this side: what has already arrived can still be read;
// then Read returns io.EOF.
func (c *Conn) CloseRead() error {
	if err := c.setFlag(&c.rx.half, "close", flagShut); err != nil {
		return err
	}
	if s := c.sub.Load(); s != nil {
		return c.awayError("close", s.conn.CloseRead())
	}
	if s, ok := c.shadow.(interface{ CloseRead() error }); ok {
		if err := s.CloseRead(); c.tcp != nil { // another's: it has ended already
			return err
		}
	}
	return nil
}

// CloseWrite ends the outbound direction: the peer reads an end of file after all that was written.
func (c *Conn) CloseWrite() error {
	if err := c.setFlag(&c.tx.half, "close", flagShut); err != nil {
		return err
	}
	if s := c.sub.Load(); s != nil {
		return c.awayError("close", s.conn.CloseWrite())
	}
	c.mu.Lock()
	c.shutError = nil
	c.mu.Unlock()
	c.askTX(wantShutdown, true) // a holder that the flag has woken may sleep again, as finishOutbound does
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shutError
}

// resetError is what a call of the program's is told by a reset that the segment says.
func (c *Conn) resetError(call string, end *segment.End) error {
	if end.Late() {
		return c.opError(call, os.NewSyscallError(call, syscall.ETIMEDOUT))
	}
	return c.opError(call, os.NewSyscallError(call, syscall.ECONNRESET))
}

// errorForCall is an error of the connection as a call of the program's is to return it. As with
// TCP, one call says that the connection was reset, or has timed out; later ones return after.
func (c *Conn) errorForCall(err, after error) error {
	if (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ETIMEDOUT)) && c.resetTold.Swap(true) {
		return after
	}
	return err
}

func (c *Conn) toldRead(err error) error { return c.errorForCall(err, io.EOF) }

func (c *Conn) toldWrite(err error) error {
	if err == nil {
		return nil
	}
	return c.errorForCall(err, c.opError("write", os.NewSyscallError("write", syscall.EPIPE)))
}

// setFlag sets a flag of h and wakes its holder to see it.
func (c *Conn) setFlag(h *half, op string, flag uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError(op, net.ErrClosed)
	}
	if c.sub.Load() == nil {
		h.flags.Or(flag)
		c.wakeLocked(h)
	}
	return nil
}

// SetLinger is that of net.TCPConn: after SetLinger(0), Close discards unsent data, and the peer's
// calls fail with ECONNRESET.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.optionError()
	}
	if s, ok := c.shadow.(interface{ SetLinger(int) error }); ok && !c.tx.guard.zeroLinger {
		if err := s.SetLinger(sec); err != nil {
			return err
		}
	}
	c.linger = sec
	return nil
}

// setError is the error of a deadline, or of a buffer's size, after Close.
func (c *Conn) setError() error {
	return &net.OpError{Op: "set", Net: c.networkName(), Addr: c.LocalAddr(), Err: net.ErrClosed}
}

// SetNoDelay is that of net.TCPConn. Direct bytes are never delayed.
func (c *Conn) SetNoDelay(on bool) error {
	return setOption(c, c.optionError, func(s interface{ SetNoDelay(bool) error }) error { return s.SetNoDelay(on) })
}

// SetKeepAlive is that of net.TCPConn.
func (c *Conn) SetKeepAlive(on bool) error {
	return setOption(c, c.optionError, func(s interface{ SetKeepAlive(bool) error }) error { return s.SetKeepAlive(on) })
}

// SetKeepAlivePeriod is that of net.TCPConn.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return setOption(c, c.optionError, func(s interface{ SetKeepAlivePeriod(time.Duration) error }) error { return s.SetKeepAlivePeriod(d) })
}

// SetKeepAliveConfig is that of net.TCPConn.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return setOption(c, c.optionError, func(s interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return s.SetKeepAliveConfig(config)
	})
}

// SetReadBuffer sets the size of the shadow's buffer; that of direct bytes is
// Config.Ring.
func (c *Conn) SetReadBuffer(bytes int) error {
	return setOption(c, c.setError, func(s interface{ SetReadBuffer(int) error }) error { return s.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets the size of the shadow's buffer; that of direct bytes is
// Config.Ring.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return setOption(c, c.setError, func(s interface{ SetWriteBuffer(int) error }) error { return s.SetWriteBuffer(bytes) })
}

// optionError is the error of an option of TCP after Close.
func (c *Conn) optionError() error { return c.opError("set", net.ErrClosed) }

// setOption gives the shadow an option. Once the connection is closed it returns closed's error:
// the shadow may outlive Close. A shadow that is not the kernel's may have no such option, and
// takes it without an error.
func setOption[S any](c *Conn, closed func() error, option func(S) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closed()
	}
	if s, ok := c.shadow.(S); ok {
		return option(s)
	}
	return nil
}

// Shadow lends the TCP connection, for inspection only: its bytes belong to the Conn.
func (c *Conn) Shadow() net.Conn { return c.shadow }

func (c *Conn) networkName() string { return c.local.Network() }

// opError wraps err as package net's connections do.
func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.networkName(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// foreignErrors are netstack's, of which only the text is known.
var foreignErrors = []struct {
	text  string
	errno syscall.Errno
}{
	{"connection reset by peer", syscall.ECONNRESET},
	{"connection aborted", syscall.ECONNRESET},
	{"endpoint is closed for send", syscall.EPIPE},
	{"broken pipe", syscall.EPIPE},
}

// foreignError turns an error of a shadow that is not the kernel's into net's.
func (c *Conn) foreignError(op string, err error) error {
	switch {
	case errors.Is(err, net.ErrClosed):
		return c.opError(op, net.ErrClosed)
	case isTimeout(err):
		return c.opError(op, os.ErrDeadlineExceeded)
	}
	for _, f := range foreignErrors {
		if strings.HasSuffix(err.Error(), f.text) {
			return c.opError(op, os.NewSyscallError(op, f.errno))
		}
	}
	return err
}

// endOnBreach ends the connection, whose peer has written an impossible value.
func (c *Conn) endOnBreach() {
	c.setReason(ReasonBreach)
	c.mu.Lock()
	for _, h := range []*half{&c.rx.half, &c.tx.half} {
		h.flags.Or(flagBroken)
		c.wakeLocked(h)
	}
	c.mu.Unlock()
	if e := c.end.Load(); e != nil {
		_ = e.Close(true) // the descriptor's error concerns nobody
	}
}
