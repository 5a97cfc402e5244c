package directsockets

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
)

// process is the broker's client that all connections share, unless their Config
// has another.
var process = sync.OnceValue(func() *client.Client {
	client, err := client.Dial(client.Config{})
	if err != nil { // without memory for a small table there is none for segments
		return nil
	}
	return client
})

func (c *Config) brokerClient() *client.Client {
	switch {
	case c.Off:
		return nil
	case c.Broker != nil:
		return c.Broker
	}
	return process()
}

// Dialer is net.Dialer for direct sockets: the zero value does what Dial does.
// Networks other than TCP and UDP are net's, unchanged.
type Dialer struct {
	net.Dialer
	// Config configures the connections.
	Config Config
	// Shadow makes the TCP connection, as net.Dialer.DialContext does. It is for TCP stacks in
	// user space. Default: the kernel's TCP.
	Shadow func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dial connects to an address, as net.Dial does. The bytes go through shared memory as soon as the
// server turns out to use direct sockets, and over TCP until then.
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout is Dial with a timeout for connecting.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Dialer: net.Dialer{Timeout: timeout}}
	return d.Dial(network, address)
}

// DialContext is Dial with a context for connecting, for http.Transport and others
// that want such a function.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, network, address)
}

// Dial connects to an address.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address. The result is a *Conn for TCP networks, a
// *UDPConn for those of UDP.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	cfg, err := d.Config.withDefaults()
	if err != nil {
		return nil, err
	}
	dial := d.Shadow
	if dial == nil {
		dial = d.Dialer.DialContext
	}
	return d.wrapDialed(cfg)(dial(ctx, network, address))
}

// wrapDialed makes a Conn of a TCP connection that was dialled.
func (d *Dialer) wrapDialed(cfg *Config) func(net.Conn, error) (net.Conn, error) {
	return func(shadow net.Conn, err error) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		if u, ok := shadow.(*net.UDPConn); ok {
			return newUDPConn(u, cfg), nil
		}
		if _, ok := shadow.LocalAddr().(*net.TCPAddr); !ok {
			return shadow, nil
		}
		return newConn(shadow, segment.Client, cfg, cfg.brokerClient()), nil
	}
}

// ListenConfig is net.ListenConfig for direct sockets: the zero value does what
// Listen does. Networks other than TCP and UDP are net's, unchanged.
type ListenConfig struct {
	net.ListenConfig
	// Config configures the connections.
	Config Config
}

// Listen announces an address, as net.Listen does. Clients that use direct sockets get a direct
// socket; others get TCP.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen announces an address. The result is a *Listener for TCP networks.
func (l *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	cfg, err := l.Config.withDefaults()
	if err != nil {
		return nil, err
	}
	lc := l.ListenConfig
	if strings.HasPrefix(network, "tcp") {
		lc.SetMultipathTCP(false) // its connections are not TCP to the broker
		inheritKeepAlive(&lc)
	}
	inner, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if _, ok := inner.Addr().(*net.TCPAddr); !ok {
		return inner, nil
	}
	return wrapListener(inner, cfg), nil
}

// NewListener makes a Listener of one that was made by other means, such as by a TCP stack in user
// space. The Listener takes it over.
func NewListener(inner net.Listener, config Config) (*Listener, error) {
	cfg, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return wrapListener(inner, cfg), nil
}

func wrapListener(inner net.Listener, cfg *Config) *Listener {
	l := &Listener{inner: inner, cfg: cfg, client: cfg.brokerClient()}
	l.waiting.Store(1)
	if l.client == nil {
		return l
	}
	s := client.Socket{Local: addrPort(inner.Addr())}
	if cfg.whyTCP(segment.Server, s.Local, true) != ReasonNone {
		return l
	}
	if tcp, ok := inner.(*net.TCPListener); ok {
		raw, err := tcp.SyscallConn()
		if err != nil { // closed already
			return l
		}
		s.Conn = raw
	}
	l.announce(s)
	return l
}

// Listener is a listener whose connections are direct sockets. It implements
// net.Listener.
//
// Concurrency: all methods may be called from many goroutines.
type Listener struct {
	inner     net.Listener
	cfg       *Config
	client    *client.Client
	announced atomic.Pointer[client.Announcement] // nil: nobody knows of it
	full      atomic.Bool                         // it was one too many: it is announced again while it is open
	lost      atomic.Bool                         // the broker has not found the socket: it was closed before
	tries     atomic.Int32                        // announcements by connections

	// waiting counts the listener, until it is closed, and the accepted connections that
	// may still become direct: for these it stays announced.
	waiting atomic.Int64
	closed  atomic.Bool
}

// endAnnouncement ends the announcement once nobody waits for it.
func (l *Listener) endAnnouncement() {
	if l.waiting.Add(-1) > 0 {
		return
	}
	if a := l.announced.Swap(nil); a != nil {
		a.Close()
	}
}

// announce tells the broker of the listener, by itself or by a connection that it has
// accepted.
func (l *Listener) announce(s client.Socket) {
	before := l.announced.Swap(l.client.Listen(s, l.onRefused))
	if before != nil {
		before.Close()
	}
}

// onRefused is told by the broker. One of full and closed is set first: who sets the other finds
// it.
func (l *Listener) onRefused(why wire.Reason) {
	if why == wire.TooMany {
		l.full.Store(true)
	}
	if why != wire.TooMany || l.closed.Load() {
		l.lost.Store(true)
	}
}

// maxAnnounced is how often a connection announces its listener, which is closed.
const maxAnnounced = 3

// reannounceListener has a connection announce the listener that accepted it, if the broker found
// that listener closed, or it was closed while there were too many.
func (c *Conn) reannounceListener() {
	l := c.from.Load()
	if l == nil || !l.lost.Load() || !l.lost.Swap(false) || l.tries.Add(1) > maxAnnounced {
		return
	}
	l.announce(c.socketProof())
	if l.waiting.Load() == 0 { // released meanwhile
		if a := l.announced.Swap(nil); a != nil {
			a.Close()
		}
	}
}

// Accept implements net.Listener; it returns a *Conn. It never waits for a segment.
func (l *Listener) Accept() (net.Conn, error) {
	shadow, err := l.inner.Accept()
	if err != nil {
		return nil, err
	}
	c := newConn(shadow, segment.Server, l.cfg, l.client)
	if c.lifeIs() != lifePlain {
		l.waiting.Add(1)
		c.from.Store(l)
	}
	return c, nil
}

// Close implements net.Listener. Accepted connections can still become direct.
func (l *Listener) Close() error {
	if !l.closed.Swap(true) {
		if l.full.Load() { // the socket is announced no more
			l.lost.Store(true)
		}
		l.endAnnouncement()
	}
	return l.inner.Close()
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// SetDeadline sets a deadline for Accept, if the underlying listener supports that.
func (l *Listener) SetDeadline(t time.Time) error {
	if s, ok := l.inner.(interface{ SetDeadline(time.Time) error }); ok {
		return s.SetDeadline(t)
	}
	return &net.OpError{Op: "set", Net: l.Addr().Network(), Addr: l.Addr(), Err: syscall.ENOTSUP}
}

// SyscallConn gives access to the descriptor, for options, if the underlying listener has one.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if s, ok := l.inner.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, &net.OpError{Op: "raw-control", Net: l.Addr().Network(), Addr: l.Addr(), Err: syscall.ENOTSUP}
}
