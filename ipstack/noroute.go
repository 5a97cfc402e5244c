package ipstack

import (
	"time"

	"exnet/exteth"
)

// The routes of the kernel get here a moment after it has them, and the packet
// of a program that did not wait may be faster: "ip route add" followed by
// "curl". As the kernel sent the packet to this interface, it has a route. So
// it is looked for again, after a time that doubles.
const (
	firstRouteWait = time.Millisecond
	lastRouteWait  = 128 * time.Millisecond // the sum is a quarter of a second
)

// awaitRoute sends a packet when there is a route for it, or tells the host that
// there is none. It copies p.
func (s *Stack) awaitRoute(p []byte, off exteth.Offload, fit bool) {
	if s.pending.Add(1) > maxPendingErrors {
		s.pending.Add(-1)
		s.noRoute(p)
		return
	}
	s.retryRoute(append([]byte(nil), p...), off, fit, firstRouteWait)
}

// retryRoute looks for a route of a pending packet after wait, and again and
// again until the last wait. It takes p.
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

// noRoute gives up a packet for want of a route. It borrows p.
func (s *Stack) noRoute(p []byte) {
	s.count.inc(TxDropNoRoute)
	s.sendICMPError(p, reasonNoRoute)
}
