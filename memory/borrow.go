package memory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"exnet/fabric"
	"exnet/internal/ctxend"
	"exnet/internal/shm"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// PageSize is the unit of sizes; HugeSize is that of leases with huge pages.
const (
	PageSize = wire.PageSize
	HugeSize = wire.HugeSize
)

// The node of a program: $EXN_MEMORY names its socket; without it, it is that of the network
// namespace.
const (
	socketEnv     = "EXN_MEMORY"
	defaultSocket = "@exn-memory"
)

// Config says what to borrow.
type Config struct {
	// Socket is the node's socket; a leading @ means the abstract namespace. Default: the one that
	// EXN_MEMORY names, or else that of the node of this network namespace.
	Socket string
	// Node is the lender. Default: any node that lends, the nearest first, and of those the one
	// that has most left.
	Node *fabric.NodeID
	// Avoid is a node that is not asked unless Node names it. Default: none.
	Avoid *fabric.NodeID
	// Size is how much, in bytes: a multiple of PageSize, or of HugeSize with Huge.
	Size int64
	// Min is what would do. Default: Size.
	Min int64
	// Huge asks for huge pages of 2 MiB.
	Huge bool
	// Time is for how long the memory is wanted: after it, or before if the lender says so, the
	// lender wants it back (Segment.Until). Default: until this program ends, or as the lender
	// says.
	Time time.Duration
	// OnRevoke is called once, in a goroutine of its own, when the lender wants the memory back, or
	// the time of the lease is over. It saves what is needed and calls Close before the deadline,
	// when the lender takes the memory in any case. Without a link to the lender it is called when
	// there is one again, which may be after the deadline. It is not called if the lease ends
	// otherwise, with its lender, or by a deadline before Borrow returns: Done and Err say so.
	// Default: the Segment ends at once.
	OnRevoke func(deadline time.Time)
}

// check says what is wrong with a Config.
func (c Config) check() error {
	unit := int64(PageSize)
	if c.Huge {
		unit = HugeSize
	}
	switch {
	case c.Size <= 0 || c.Size%unit != 0:
		return fmt.Errorf("%w: a size of %d bytes: use a multiple of %d", ErrRange, c.Size, unit)
	case c.Min < 0 || c.Min > c.Size || c.Min%unit != 0:
		return fmt.Errorf("%w: a minimum of %d bytes: use a multiple of %d, up to the size", ErrRange, c.Min, unit)
	case c.Time < 0:
		return fmt.Errorf("%w: a time of %v", fabric.ErrInvalid, c.Time)
	}
	return nil
}

// matchesLease says whether a lease of n bytes is what was asked for.
func (c Config) matchesLease(n uint64) bool {
	least, unit := c.Min, uint64(PageSize)
	if least == 0 {
		least = c.Size
	}
	if c.Huge {
		unit = HugeSize
	}
	return n >= uint64(least) && n <= uint64(c.Size) && n%unit == 0
}

// Borrow borrows memory of another node. It is zeros at first. The error wraps ErrRefused if
// nobody lends that much, ErrRange if the size is impossible, or fabric.ErrNoRoute if there is no
// node here.
func Borrow(ctx context.Context, cfg Config) (*Segment, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conn, err := dialNode(cfg.Socket)
	if err != nil {
		return nil, err
	}
	s, err := borrow(ctx, conn, cfg)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return s, nil
}

// dialNode connects to a node's socket.
func dialNode(socket string) (*net.UnixConn, error) {
	if socket == "" {
		socket = os.Getenv(socketEnv)
	}
	if socket == "" {
		socket = defaultSocket
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("memory: no node at %s: start one with exn-tun up: %w", socket, errors.Join(fabric.ErrNoRoute, err))
	}
	if err := caller.Trusted(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("memory: the node at %s: %w", socket, errors.Join(fabric.ErrNoRoute, err))
	}
	return conn, nil
}

func borrow(ctx context.Context, conn *net.UnixConn, cfg Config) (*Segment, error) {
	if err := context.Cause(ctx); err != nil { // what has ended before asks for nothing
		return nil, err
	}
	defer ctxend.Do(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	m := wire.Message{Op: wire.OpBorrow, Number: 1, B: uint64(cfg.Size), C: uint64(cfg.Min), D: uint64(cfg.Time)}.Offering()
	if cfg.Huge {
		m.Flags |= wire.FlagHuge
	}
	if cfg.Node != nil {
		m.Flags, m.Node = m.Flags|wire.FlagNode, *cfg.Node
	}
	if cfg.Avoid != nil {
		m.E = uint64(*cfg.Avoid) + 1
	}
	b, _ := m.AppendBinary(nil) // it does not fail
	if _, err := conn.Write(b); err != nil {
		return nil, fmt.Errorf("memory: the node: %w", err)
	}
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		return nil, err
	}
	b, fds, err := in.Next()
	defer fds.Close()
	if err != nil {
		return nil, fmt.Errorf("memory: the node does not answer: %w", err)
	}
	if err := m.UnmarshalBinary(b); err != nil {
		return nil, err
	}
	if m.Op != wire.OpBorrow || m.Status != wire.StatusOK {
		return nil, refusal(cfg, m)
	}
	if len(fds) != 1 || !cfg.matchesLease(m.B) {
		return nil, fmt.Errorf("%w: an answer of %d bytes with %d descriptors", wire.ErrMessage, m.B, len(fds))
	}
	done := make(chan struct{})
	var way path
	if m.Flags&wire.FlagFar != 0 {
		way, err = newWindow(conn, fds[0], m.E, done)
	} else {
		way, err = shm.MapLoan(fds[0], int64(m.B))
		if errors.Is(err, shm.ErrCut) { // it has been taken back already
			err = ErrRevoked
		}
	}
	if err != nil {
		return nil, err
	}
	s := &Segment{conn: conn, memory: way, size: int64(m.B), node: m.Node, onRevoke: cfg.OnRevoke, done: done, watched: make(chan struct{})}
	if m.C != 0 {
		s.until = time.Unix(0, int64(m.C))
	}
	s.life.On(lease.OnGranted)
	go s.handleMessages(in)
	return s, nil
}
