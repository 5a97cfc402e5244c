package rawbench

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// Unit is a unit of the NIC.
type Unit string

const (
	VELO Unit = "velo"
	RMA  Unit = "rma"
)

const (
	// MaxVELO and MaxRMA are the largest messages.
	MaxVELO = velo.MaxPayload
	MaxRMA  = rma.MaxTransfer

	// depth is how many GETs are under way in a stream.
	depth = 4

	// clockOps is how many messages go by between two looks at the clock.
	clockOps = 64
)

// found is what one end found.
type found struct {
	Bytes   int64            `json:"bytes"`
	Seconds float64          `json:"seconds"`
	CPU     float64          `json:"cpu_seconds"`
	Latency *stats.Histogram `json:"latency,omitempty"`
}

// clock tells the warm-up from what counts.
type clock struct {
	spec                tcpbench.Spec
	start               time.Time
	cpuFirst, cpuLast   time.Duration
	counting, done      bool
	bytes               int64
	firstTime, lastTime time.Duration
}

func newClock(spec tcpbench.Spec) *clock { return &clock{spec: spec, start: time.Now()} }

// add counts bytes that were moved by now.
func (c *clock) add(bytes int64) time.Duration {
	now := time.Since(c.start)
	switch {
	case c.counting:
		c.bytes += bytes
		if now-c.firstTime >= c.spec.Duration {
			c.done, c.lastTime, c.cpuLast = true, now, cpuTime()
		}
	case now >= c.spec.Warmup:
		c.counting, c.firstTime, c.cpuFirst = true, now, cpuTime()
	}
	return now
}

func (c *clock) found(h *stats.Histogram) found {
	return found{c.bytes, (c.lastTime - c.firstTime).Seconds(), (c.cpuLast - c.cpuFirst).Seconds(), h}
}

// cpuTime returns the user and system time of this process.
func cpuTime() time.Duration {
	var use unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &use) // only a bad argument fails
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// near does the part of the end that begins.
func (r *rig) near(u Unit, spec tcpbench.Spec) (found, error) {
	if err := r.meetAndShare(spec.Size); err != nil {
		return found{}, err
	}
	switch {
	case u == VELO && spec.Kind == tcpbench.PingPong:
		return r.pings(spec, func(msg []byte) error {
			if err := r.send(tagData, msg); err != nil {
				return err
			}
			if _, _, err := r.receive(); err != nil {
				return err
			}
			r.velo.Advance()
			return nil
		})
	case u == RMA && spec.Kind == tcpbench.PingPong:
		return r.pings(spec, func([]byte) error {
			if err := r.put(spec.Size); err != nil {
				return err
			}
			return r.notified()
		})
	case u == VELO && (spec.Kind == tcpbench.Stream || spec.Kind == tcpbench.Rate):
		return r.sends(spec)
	case u == RMA && spec.Kind == tcpbench.Stream:
		return r.gets(spec)
	}
	return found{}, fmt.Errorf("%s cannot be measured over %s", spec.Kind, u)
}

// far does the part of the other end.
func (r *rig) far(u Unit, spec tcpbench.Spec) (found, error) {
	if err := r.meetAndShare(spec.Size); err != nil {
		return found{}, err
	}
	start, cpu := time.Now(), cpuTime()
	var err error
	switch {
	case spec.Kind == tcpbench.PingPong && u == VELO:
		err = r.echoes()
	case spec.Kind == tcpbench.PingPong:
		err = r.putsBack(spec.Size)
	case u == VELO:
		return r.counts(spec)
	default:
		err = r.serves()
	}
	if gone(err) {
		err = nil // the other end knows why, or was done
	}
	return found{Seconds: time.Since(start).Seconds(), CPU: (cpuTime() - cpu).Seconds()}, err
}

// gone says that the other end is not there any more.
func gone(err error) bool {
	return errors.Is(err, errDown) || errors.Is(err, fabric.ErrPeerDown) || errors.Is(err, fabric.ErrNoRoute)
}

func (r *rig) meetAndShare(size int) error {
	if err := r.share(size); err != nil {
		return err
	}
	return r.meet()
}

// pings times round trips.
func (r *rig) pings(spec tcpbench.Spec, once func(msg []byte) error) (found, error) {
	msg := make([]byte, spec.Size)
	h := stats.NewHistogram()
	c := newClock(spec)
	before := time.Duration(0)
	for !c.done {
		if err := once(msg); err != nil {
			return found{}, err
		}
		counting := c.counting
		now := c.add(int64(spec.Size))
		if counting {
			h.Record(now - before)
		}
		before = now
	}
	return c.found(h), r.send(tagStop, stop)
}

// echoes returns messages until it is told to stop.
func (r *rig) echoes() error {
	for {
		tag, msg, err := r.receive()
		if err != nil || tag == tagStop {
			return err
		}
		if err := r.send(tagData, msg); err != nil {
			return err
		}
		r.velo.Advance()
	}
}

// put writes to the peer's sink, whose completer tells the peer.
func (r *rig) put(size int) error {
	return r.rma.Put(rma.PutReq{
		Local: r.source.NLA(), Remote: r.farSink, Len: size, Node: r.peer, VPID: vpid,
		Notify: rma.NotifyRequester | rma.NotifyCompleter, // table 3.1 has no other with the latter
	})
}

// putsBack answers every PUT with one.
func (r *rig) putsBack(size int) error {
	for spins := 0; ; spins++ {
		n, ok := r.rma.Next()
		if ok {
			if err := n.Status.Err(); err != nil {
				return err
			}
			if n.Writer != rma.Completer { // of a PUT of ours
				continue
			}
			if err := r.put(size); err != nil {
				return err
			}
			continue
		}
		if spins%1024 == 0 && r.stopped() {
			return nil
		}
		if err := r.idle(); err != nil {
			return err
		}
	}
}

// sends sends messages until the other end has counted enough.
func (r *rig) sends(spec tcpbench.Spec) (found, error) {
	msg := make([]byte, spec.Size)
	start, cpu := time.Now(), cpuTime()
	for n := 1; n%clockOps != 0 || !r.stopped(); n++ {
		if err := r.send(tagData, msg); err != nil {
			return found{}, err
		}
	}
	f := found{Seconds: time.Since(start).Seconds(), CPU: (cpuTime() - cpu).Seconds()}
	return f, r.send(tagStop, stop)
}

// counts counts messages, and tells the sender when it is enough. After that it takes what is under
// way, so that the sender has credit until it has seen the stop and answered.
func (r *rig) counts(spec tcpbench.Spec) (found, error) {
	c := newClock(spec)
	for n := 1; !c.done; n++ {
		if _, _, err := r.receive(); err != nil {
			return found{}, err
		}
		r.velo.Advance()
		if n%clockOps == 0 {
			c.add(clockOps * int64(spec.Size))
		}
	}
	if err := r.send(tagStop, stop); err != nil {
		return found{}, err
	}
	for {
		tag, _, err := r.receive()
		if err != nil && !gone(err) {
			return found{}, err
		}
		if err != nil || tag == tagStop {
			return c.found(nil), nil
		}
		r.velo.Advance()
	}
}

// gets reads the peer's source over and over, depth transfers at a time.
func (r *rig) gets(spec tcpbench.Spec) (found, error) {
	get := rma.GetReq{
		Local: r.sink.NLA(), Remote: r.farSource, Len: spec.Size, Node: r.peer, VPID: vpid,
		Notify: rma.NotifyCompleter,
	}
	c := newClock(spec)
	under := 0
	for !c.done || under > 0 {
		for ; under < depth && !c.done; under++ {
			if err := r.rma.Get(get); err != nil {
				return found{}, err
			}
		}
		if err := r.notified(); err != nil {
			return found{}, err
		}
		under--
		if !c.done {
			c.add(int64(spec.Size))
		}
	}
	return c.found(nil), r.send(tagStop, stop)
}

// serves polls, so that the peer's requests are served at once.
func (r *rig) serves() error {
	for spins := 0; ; spins++ {
		r.rma.Next()
		if spins%1024 == 0 && r.stopped() {
			return nil
		}
		if err := r.idle(); err != nil {
			return err
		}
	}
}
