package stream

import (
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/internal/counter"
)

// Link joins the local NIC with one peer.
//
// Concurrency: all methods may be called from many goroutines.
type Link struct {
	nic   NIC
	cfg   Config
	count counters
	done  chan struct{}
}

// New joins n with the node at the other end of cfg.Conns, which calls New, too. It
// takes the connections, also if it fails. When it returns, the mailboxes that the
// peer had open are known, those that it opens later will be. The caller makes sure
// that n has no other link to the peer. It must not be called by the driver's thread.
func New(n NIC, cfg Config) (*Link, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("stream: link to node %d: %w", cfg.Peer, fabric.ErrAgain)
}

// Peer returns the node on the other end.
func (l *Link) Peer() fabric.NodeID { return l.cfg.Peer }

// Done returns a channel that is closed when the link is down and everything is
// given back.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link is down: ErrGone, ErrSilent, ErrBreach or fabric.ErrClosed. Nil
// while it is up.
func (l *Link) Err() error { return nil }

// Close takes the link down. It does not wait; Done does.
func (l *Link) Close() error { return nil }

// Stats returns the counters.
func (l *Link) Stats() (s Stats) {
	counter.Load(&l.count, &s)
	return s
}

// RTT is the round trip of the last heartbeat that was answered; 0: none was yet.
func (l *Link) RTT() time.Duration {
	return time.Duration(l.count.RTTMicros.Load()) * time.Microsecond
}
