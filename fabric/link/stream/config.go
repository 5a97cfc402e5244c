package stream

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/internal/counter"
)

// MaxConns is how many connections a link has at most.
const MaxConns = 4

// Errors of a Link: why New failed, or why the peer is gone.
var (
	// ErrHello: the other end is no exnet node, or not the one that was expected.
	// Leave it.
	ErrHello = errors.New("stream: bad hello")
	// ErrVersion: the other end has another version of this link. Update one.
	ErrVersion = errors.New("stream: the peer has another version of the link: update one of them")
	// ErrBreach: the peer sent an impossible value. The link was closed.
	ErrBreach = errors.New("stream: the peer broke the protocol")
	// ErrGone: the peer has closed its end, or has died.
	ErrGone = fmt.Errorf("stream: peer is gone: %w", fabric.ErrPeerDown)
	// ErrSilent: nothing was heard of the peer within Config.DownAfter.
	ErrSilent = fmt.Errorf("stream: nothing heard of the peer for too long: %w", fabric.ErrPeerDown)
	// ErrStuck: the peer lives, and a transfer did not move for ten times Config.DownAfter.
	ErrStuck = fmt.Errorf("stream: a transfer does not move, although the peer lives: %w", fabric.ErrPeerDown)
)

// Config is how a link is made. The zero value of a field means its default.
type Config struct {
	// Peer is the node at the other end, which says so itself, too. There is no
	// default: 0 is node 0.
	Peer fabric.NodeID
	// Conns are the connections, 1 to MaxConns, over which nothing was sent that is not
	// read. They carry what the peer's Conns carry, in any order. Each is a *net.TCPConn, or a
	// *tls.Conn over package sealed, for the link uses their sockets itself; with an Engine
	// they may be of any kind. Their congestion control is for who makes them to choose: one
	// that sends at a pace, as bbr does, costs half as much CPU time again. Required.
	Conns []net.Conn
	// Engine carries the bytes in place of Conns, which are closed when the hellos are
	// said. Default: Conns do.
	Engine Engine
	// Driver is the thread that serves the sockets as long as it can; then, and without
	// one, the link has a goroutine.
	Driver link.Driver
	// HelloTimeout is how long the peer may take to introduce itself. Default 2 s.
	HelloTimeout time.Duration
	// Heartbeat is how often the peer is asked for a sign of life. Default 1 s.
	Heartbeat time.Duration
	// DownAfter is how long nothing may be heard of the peer. Default 3 Heartbeats, at
	// least 2.
	DownAfter time.Duration
}

const (
	defaultHello     = 2 * time.Second
	defaultHeartbeat = time.Second
	minHeartbeat     = time.Millisecond
)

// withDefaults returns a checked copy.
func (c Config) withDefaults() (Config, error) {
	if c.HelloTimeout == 0 {
		c.HelloTimeout = defaultHello
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.DownAfter == 0 {
		c.DownAfter = 3 * c.Heartbeat
	}
	switch {
	case len(c.Conns) < 1 || len(c.Conns) > MaxConns:
		return c, fmt.Errorf("stream: %d connections: use 1 to %d: %w", len(c.Conns), MaxConns, fabric.ErrInvalid)
	case c.HelloTimeout < 0:
		return c, fmt.Errorf("stream: hello timeout %v: %w", c.HelloTimeout, fabric.ErrInvalid)
	case c.Heartbeat < minHeartbeat || c.DownAfter < 2*c.Heartbeat:
		return c, fmt.Errorf("stream: heartbeat %v, down after %v: use at least %v, and twice the heartbeat: %w",
			c.Heartbeat, c.DownAfter, minHeartbeat, fabric.ErrInvalid)
	}
	for i, nc := range c.Conns {
		if c.Engine == nil && tcpOf(nc) == nil {
			return c, fmt.Errorf("stream: connection %d is a %T: use *net.TCPConn: %w", i, nc, fabric.ErrInvalid)
		}
	}
	return c, nil
}

// downBeats is how many heartbeats DownAfter lasts.
func (c *Config) downBeats() int { return int((c.DownAfter + c.Heartbeat - 1) / c.Heartbeat) }

// Stats are the counters of a Link.
type Stats struct {
	TxBytes    uint64 // sent, all that the connections carry
	TxMessages uint64 // VELO messages of these
	RxBytes    uint64 // received
	RxMessages uint64 // VELO messages of these
	Writes     uint64 // system calls that sent
	Reads      uint64 // and that received something
	Blocked    uint64 // times that a connection took no more
	Parked     uint64 // messages that waited for room in their mailbox
	Bounced    uint64 // transfers to a device, which are gathered first
	RTTMicros  uint64 // last round trip of a heartbeat, in microseconds; 0: none yet
	TxRate     uint64 // bytes a second sent between the last two heartbeats
	RxRate     uint64 // and received
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	TxBytes, TxMessages, RxBytes, RxMessages, Writes, Reads, Blocked, Parked, Bounced, RTTMicros, TxRate, RxRate atomic.Uint64
}
