package rma

import (
	"sync/atomic"

	"exnet/fabric"
)

// Stats are the counters of the unit.
type Stats struct {
	Gets             uint64 // own GETs that ended well
	GetBytes         uint64
	Puts             uint64 // own PUTs that ended well, immediate ones included
	PutBytes         uint64
	Failed           uint64 // own operations that ended with an error status
	Served           uint64 // peers' operations that ended well
	LocalProtection  uint64 // own operations refused: local address
	QueueFull        uint64 // own operations refused: no room for the notification
	NoRoute          uint64 // own operations refused: node unknown
	RemoteProtection uint64 // peers' operations refused: address
	NoVPID           uint64 // peers' operations refused: VPID not open
	BadRequests      uint64 // peers' operations refused: malformed
	Overruns         uint64 // peers' operations refused: no room for the notification
	Interrupts       uint64 // calls of OnInterrupt
}

type counters struct {
	gets, getBytes, puts, putBytes, failed atomic.Uint64
	served                                 atomic.Uint64
	localProtection, queueFull, noRoute    atomic.Uint64
	remoteProtection, noVPID, badRequests  atomic.Uint64
	overruns, interruptsPast               atomic.Uint64
}

// countEnd counts an own operation.
func (c *counters) countEnd(n Notification) {
	switch {
	case n.Status != fabric.StatusOK:
		c.failed.Add(1)
	case n.Command == CommandGet:
		c.gets.Add(1)
		c.getBytes.Add(uint64(n.Len))
	default:
		c.puts.Add(1)
		c.putBytes.Add(uint64(n.Len))
	}
}

// Stats returns the counters.
func (u *Unit) Stats() Stats {
	c := &u.count
	interrupts := c.interruptsPast.Load()
	for i := range u.eps {
		if e := u.eps[i].Load(); e != nil {
			interrupts += e.queue.line.Fired()
		}
	}
	return Stats{
		Gets:             c.gets.Load(),
		GetBytes:         c.getBytes.Load(),
		Puts:             c.puts.Load(),
		PutBytes:         c.putBytes.Load(),
		Failed:           c.failed.Load(),
		Served:           c.served.Load(),
		LocalProtection:  c.localProtection.Load(),
		QueueFull:        c.queueFull.Load(),
		NoRoute:          c.noRoute.Load(),
		RemoteProtection: c.remoteProtection.Load(),
		NoVPID:           c.noVPID.Load(),
		BadRequests:      c.badRequests.Load(),
		Overruns:         c.overruns.Load(),
		Interrupts:       interrupts,
	}
}
