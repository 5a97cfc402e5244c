package emp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"exnet/fabric"
	"exnet/internal/ctxend"
)

// Link is a link to one peer, as the Linker's package makes it.
type Link interface {
	Peer() fabric.NodeID
	// Done is closed when the peer is gone, or after Close.
	Done() <-chan struct{}
	// Err says why, once Done is closed.
	Err() error
	// Close ends the link.
	Close() error
}

// Linker makes a link to the peer at the other end of conn, a connected SOCK_SEQPACKET
// socket over which only hellos were sent. It takes conn, even if it fails. It must fail
// if conn is closed meanwhile.
type Linker func(conn *net.UnixConn, peer fabric.NodeID) (Link, error)

// State is what a peer is to this node.
//
//	           connected, hello            Linker
//	Connecting ────────────────► Linking ─────────► Up
//	    ▲                           │ failed         │ Done
//	    └───────────────────────────┴────────────────┘
type State uint8

// The states. The zero State is invalid.
const (
	Connecting State = iota + 1 // waiting for a connection
	Linking                     // the Linker runs
	Up
)

func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Linking:
		return "linking"
	case Up:
		return "up"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Peer describes a peer and its link.
type Peer struct {
	Description
	State State
	Since time.Time // when this state began
	Link  Link      // nil unless Up
	Links uint64    // times that it was linked
	Err   error     // why the last attempt or link ended; nil if none has
	// Endpoint is the address of a peer of another host; the zero AddrPort for a peer of
	// this host.
	Endpoint netip.AddrPort
	// Key is the fingerprint of its key; "" if it has shown none.
	Key string
}

// Home is where a node finds its peers: in the directory of its host (Member), or on the
// network between hosts (package mesh).
type Home interface {
	// Peers returns the other living nodes there, in the order of their IDs.
	Peers() []Peer
	// JoinGroup and LeaveGroup tell them which IP multicast groups this node is in.
	JoinGroup(netip.Addr)
	LeaveGroup(netip.Addr)
}

var _ Home = (*Member)(nil)

// Times between two attempts to connect: doubled each time until the last.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
	// steady is how long a link must last for the next attempt to wait only firstRetry.
	steady = 2 * time.Second
)

// peer is the life of one peer of a Member, under one token.
type peer struct {
	m        *Member
	desc     Description
	incoming chan *net.UnixConn // connections of the peer, which have exchanged hellos
	stop     context.CancelFunc
	done     chan struct{} // closed when the peer's last link has ended

	// Guarded by m.mu.
	gone    bool
	pid     int32 // process of the last hello; 0 if it is not in this PID namespace
	greeted bool
	now     Peer
}

// startPeer makes a peer, which lives until ctx ends or stop is called. It waits for
// the one that had its ID before.
func (m *Member) startPeer(ctx context.Context, desc Description, before *peer, link Linker) *peer {
	runs := ctx
	ctx, stop := context.WithCancel(runs)
	p := &peer{
		m: m, desc: desc, stop: stop,
		incoming: make(chan *net.UnixConn),
		done:     make(chan struct{}),
		now:      Peer{Description: desc, State: Connecting, Since: time.Now()},
	}
	go func() {
		defer close(p.done)
		defer stop()
		if before != nil {
			before.stop()
			<-before.done
		}
		p.keepLinked(ctx, link)
		if runs.Err() == nil {
			m.onLeft(desc.Node)
		}
	}()
	return p
}

// keepLinked links the peer, and again whenever the link ends.
func (p *peer) keepLinked(ctx context.Context, connect Linker) {
	if p.desc.Version != Version {
		p.noteFailure(versionError(p.desc.Node, p.desc.Version))
		<-ctx.Done()
		return
	}
	wait := firstRetry
	var conn *net.UnixConn // accepted while another link was up
	for {
		var err error
		if conn == nil {
			if conn, err = p.connection(ctx); ctx.Err() != nil {
				return
			}
		}
		began := time.Now()
		if err == nil {
			conn, err = p.holdLink(ctx, conn, connect)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			wait = firstRetry
		}
		p.noteFailure(err)
		if conn != nil || p.m.self.Node < p.desc.Node {
			continue // the peer takes its time
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// connection returns a new connection: the higher ID connects to the lower.
func (p *peer) connection(ctx context.Context) (*net.UnixConn, error) {
	if p.m.self.Node > p.desc.Node {
		return p.m.dialPeer(ctx, p)
	}
	select {
	case conn := <-p.incoming:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// holdLink makes a link of conn, which it takes, and returns when the link has ended. It
// returns another connection if the peer has opened one.
func (p *peer) holdLink(ctx context.Context, conn *net.UnixConn, connect Linker) (*net.UnixConn, error) {
	p.setState(Linking, nil)
	unblock := ctxend.Do(ctx, func() { conn.Close() })
	link, err := connect(conn, p.desc.Node)
	unblock()
	if err != nil {
		return nil, err
	}
	p.setState(Up, link)
	p.m.log.Info("linked", "node", p.desc.Node)
	var next *net.UnixConn
	select {
	case <-link.Done():
		err = link.Err()
	case next = <-p.incoming:
		// The peer reconnects only after its end of the link has failed.
		err = errors.New("the peer has reconnected")
	case <-ctx.Done():
		err = ctx.Err()
	}
	closeErr := link.Close()
	<-link.Done()
	if err == nil {
		err = closeErr
	}
	return next, err
}

func (p *peer) setState(s State, link Link) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.now.State, p.now.Since, p.now.Link = s, time.Now(), link
	if s == Up {
		p.now.Links++
		p.now.Err = nil
	}
}

// noteFailure notes why there is no link, and tells of it if that is news.
func (p *peer) noteFailure(err error) {
	p.setState(Connecting, nil)
	p.m.mu.Lock()
	before := p.now.Err
	p.now.Err = err
	p.m.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		p.m.log.Info("no link", "node", p.desc.Node, "reason", err)
	}
}

// Peers returns the other living nodes in the order of their IDs.
func (m *Member) Peers() []Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	peers := make([]Peer, 0, len(m.peers))
	for _, p := range m.peers {
		peers = append(peers, p.now)
	}
	sortPeers(peers)
	return peers
}
