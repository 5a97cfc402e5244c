package ipstack

import (
	"time"

	"exnet/exteth"
)

// The kernel's routes are mirrored a moment after it has them. A packet sent right
// after "ip route add" may overtake its route. As the kernel sent the packet to this
// interface, a route exists, so the packet waits, and the route is looked up again
// after intervals that double.
const (
	firstRouteWait = time.Millisecond
	lastRouteWait  = 128 * time.Millisecond // the sum is a quarter of a second
)

// awaitRoute sends a packet when there is a route for it, or else an ICMP error to the
// host. It copies p.
func (s *Stack) awaitRoute(p []byte, off exteth.Offload, fit bool) {
	if s.pending.Add(1) > maxPendingErrors {
		s.pending.Add(-1)
		s.noRoute(p)
		return
	}
	s.retryRoute(append([]byte(nil), p...), off, fit, firstRouteWait)
}

// retryRoute looks up the route of a pending packet after wait, then after twice that
// time, up to lastRouteWait. It takes p.
func (s *Stack) retryRoute(p []byte, off exteth.Offload, fit bool, wait time.Duration) {
	s.net.Clock().AfterFunc(wait, func() {
		if s.closed.Load() {
			s.count.inc(TxDropClosed)
			s.pending.Add(-1)
			return
		}
		switch sent, _ := s.sendRouted(p, off, fit, nil); {
		case sent:
		case wait < lastRouteWait:
			s.retryRoute(p, off, fit, 2*wait)
			return // still pending
		default:
			s.noRoute(p)
		}
		s.pending.Add(-1)
	})
}

// noRoute drops a packet that has no route. It borrows p.
func (s *Stack) noRoute(p []byte) {
	s.count.inc(TxDropNoRoute)
	s.sendICMPError(p, reasonNoRoute)
}
