package udp

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// inflow is a flow to the socket.
type inflow struct {
	rx     *datagram.Rx
	entry  connstats.Entry
	count  *segment.Counters
	cookie uint64 // of the sender's socket, as the broker knows it or, if it does not say, the kernel when the flow began
	phase  inPhase
	dirty  bool  // it is in inbound.dirty: a place in a list, and no state
	used   bool  // since its sender was last checked: says whether a check is due, and changes nothing else
	early  int64 // since when its first record waits for the kernel's datagrams; 0: it does not. A time limit

	earlyAt uint64 // how many had come by the kernel then
	young   int    // datagrams by the kernel
	late    int    // how often its sender has published for longer than busyTime
}

func (f *inflow) counted(n int) {
	f.count.Add(segment.ReceivedDirect, uint64(n))
	if n <= 112 {
		f.count.Add(segment.ReceivedVELOLast, 1)
	} else {
		f.count.Add(segment.ReceivedRMAInfo, 1)
	}
}

// claim asks the broker for a flow, if it shows one.
func (in *inbound) claim() {
	c := in.s.cfg.Broker
	if !c.FlowsOpen() {
		return
	}
	word, may := c.MayHaveOffer(wire.UDPBucket(in.port), in.none.Load())
	if !may || !in.setup.on(setupClaim) {
		return
	}
	err := c.Claim(in.s.socketOf(), func(g client.Granted, err error) {
		switch {
		case err == nil && in.setup.grant(g):
			in.some.Store(true)
			return
		case err == nil: // its sender is told by the end of its doorbell
			_ = unix.Close(g.Segment)
			_ = unix.Close(g.Bell)
		case errors.Is(err, client.ErrNone): // else the next broker's page counts from 0
			in.none.Store(word)
		}
		in.setup.on(setupNone)
	})
	if err != nil {
		in.setup.on(setupNone)
	}
}

// install begins the flow that was granted.
func (in *inbound) install() {
	if g := in.setup.begin(); g != nil {
		in.begin(*g)
	}
}

func (in *inbound) begin(g client.Granted) {
	seg, err := datagram.Map(g.Segment)
	_ = unix.Close(g.Segment)
	if err != nil {
		_ = unix.Close(g.Bell)
		return
	}
	info := seg.Info()
	if info.Nonce != g.Nonce || info.From != g.Key.Client || info.To != g.Key.Server || info.To.Port() != in.port || in.ended {
		_ = unix.Close(g.Bell)
		seg.Retire()
		return
	}
	o := in.s.look()
	if before := in.bySrc[info.From]; before != nil {
		in.keepOf(before)
		in.drop(before, connstats.WhyNothing)
	}
	if len(in.flows) >= maxFlows {
		in.sweep()
	}
	cookie, err := peerOf(info.To, info.From)
	elsewhere := g.Cookie != 0 && cookie != g.Cookie // another one has the address by now
	if len(in.flows) >= maxFlows || o.plain || err != nil || elsewhere {
		datagram.Refuse(seg, g.Bell)
		return
	}
	f := &inflow{rx: datagram.NewRx(seg, g.Bell, o.rcvbuf), cookie: cookie}
	f.entry = in.s.cfg.Broker.Stats().Alloc(connstats.EntryInfo{Key: g.Key, Server: true, FD: in.s.fd, Since: time.Now(), UDP: true})
	f.entry.SetNonce(g.Nonce)
	f.count = (*segment.Counters)(f.entry.Counters())
	f.entry.SetPath(connstats.PathMemory)
	f.entry.Set(connstats.ModeDirect, connstats.WhyNothing)
	if len(in.flows) == 0 { // what the socket has dropped before is no flow's
		n, _ := in.drops()
		in.gone += n
	}
	in.flows = append(in.flows, f)
	in.bySrc[info.From] = f
	f.dirty = true
	in.dirty = append(in.dirty, f)
	switch {
	case in.noBells:
		f.rx.EndAfter()
	case o.shareable:
		in.endBells()
	}
	in.some.Store(true)
	in.s.tidyLater()
}

// tidy ends flows whose sender is gone and from which all was taken. It reports whether there are
// others.
func (in *inbound) tidy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sweep()
	return len(in.flows) > 0
}

// sweep forgets flows that are over.
func (in *inbound) sweep() {
	for i := 0; i < len(in.flows); i++ {
		if f := in.flows[i]; f.rx.Over() {
			in.drop(f, connstats.WhyNothing)
			i--
		}
	}
}

// check looks now and then, while datagrams come, whether the senders are still who they were: a
// socket that is closed leaves its port to others, but not the segment. What was sent until now is
// still taken. drains: there is some of that.
func (in *inbound) check() (drains bool) {
	now := shm.Nanotime()
	if time.Duration(now-in.checked) < checkTime {
		return false
	}
	in.checked = now
	for i := 0; i < len(in.flows); i++ {
		f := in.flows[i]
		if f.phase == inArmed && segment.SwitchedOff(f.entry.Switch()) {
			in.switchOff(f)
		}
		info := f.rx.Info()
		if f.used && f.phase != inDraining && f.phase != inEnded {
			f.used = false
			if moved(info.To, info.From, f.cookie) {
				f.rx.Stop()
				f.on(in, inMoved)
			}
		}
		switch {
		case f.phase == inEnded:
			i--
		case f.rx.Over():
			in.drop(f, connstats.WhyNothing)
			i--
		default:
			drains = drains || f.phase == inDraining
		}
	}
	return drains
}

// switchOff has an armed flow end once the socket has taken what is in the ring: its sender may
// have written there after a bell. If that one is writing for too long, the flow ends now, or the
// next check calls this again.
func (in *inbound) switchOff(f *inflow) {
	f.rx.Arm(true)
	f.on(in, inRing)
	in.await([]*inflow{f})
	if f.phase != inRung || f.rx.Busy() {
		return
	}
	f.rx.Stop()
	f.on(in, inClose)
	f.entry.Set(connstats.ModeDemoted, connstats.WhySwitchedOff)
}

// drop ends a flow. why: WhyNothing if one of its sockets has ended.
func (in *inbound) drop(f *inflow, why connstats.Why) {
	f.on(in, inDrop)
	in.forget(f, why)
}

// forget closes a flow that has ended.
func (in *inbound) forget(f *inflow, why connstats.Why) {
	f.rx.Close()
	if why != connstats.WhyNothing {
		f.entry.Set(connstats.ModeDemoted, why)
	}
	f.entry.Free()
	remove(&in.flows, f)
	remove(&in.dirty, f)
	remove(&in.parked, f)
	if from := f.rx.Info().From; in.bySrc[from] == f {
		delete(in.bySrc, from)
	}
}

func remove(all *[]*inflow, f *inflow) {
	if i := slices.Index(*all, f); i >= 0 {
		*all = slices.Delete(*all, i, i+1)
	}
}

// kept is a datagram that was in a ring.
type kept struct {
	Datagram
	b []byte
	// after is how many of its sender's the kernel's socket has still to give before it.
	after uint64
	stamp uint64
}

// mostKept is how many bytes of datagrams are kept, each with keptCost. What is more is lost, as it
// is when the kernel's queue is full.
const (
	mostKept = 4 << 20
	keptCost = 256
)

// fromKept returns a datagram that was kept. While the kernel's queue has something, one that waits
// for earlier datagrams of its sender is not returned: those are there.
func (in *inbound) fromKept(b []byte) (d Datagram, ok bool) {
	if len(in.kept) == 0 || over(&in.s.readUntil) {
		return d, false
	}
	i := in.firstKept()
	if i < 0 {
		if in.readable() {
			return d, false
		}
		i = 0 // the kernel has lost them
	}
	k := in.kept[i]
	if i == 0 {
		in.kept[0] = kept{}
		in.kept = in.kept[1:]
	} else {
		in.kept = slices.Delete(in.kept, i, i+1)
	}
	k.N = copy(b, k.b)
	in.settle()
	return k.Datagram, true
}

// firstKept is the first kept datagram of a sender that does not wait for the kernel; -1: all wait.
func (in *inbound) firstKept() int {
	var waiting []netip.AddrPort
	for i, k := range in.kept {
		switch {
		case slices.Contains(waiting, k.From):
		case k.after > 0:
			waiting = append(waiting, k.From)
		default:
			return i
		}
	}
	return -1
}

// keptAfter has what is kept of a sender know that one more of its has come by the kernel.
func (in *inbound) keptAfter(from netip.AddrPort) {
	for i := range in.kept {
		if k := &in.kept[i]; k.From == from && k.after > 0 {
			k.after--
			return
		}
	}
}

// settle has the kernel's socket be all that there is, if the socket has left, nothing is kept, and
// that has the program's deadline.
func (in *inbound) settle() {
	if in.ended && len(in.kept) == 0 && !in.waking {
		in.s.plain.Store(true)
		in.tellLooked()
	}
}

// asleep reports whether goroutines are in the kernel's call, though datagrams are kept.
func (in *inbound) asleep() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.kept) > 0 && in.waiting.Load() > 0
}

// beginWake begins to wake them. False: there are none.
func (in *inbound) beginWake() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waking = len(in.kept) > 0 && in.waiting.Load() > 0
	return in.waking
}

func (in *inbound) endWake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waking = false
	in.settle()
}

// tellLooked has wake look again.
func (in *inbound) tellLooked() {
	select {
	case in.looked <- struct{}{}:
	default:
	}
}

// mayKeep is how many bytes more may be kept, each datagram with keptCost.
func (in *inbound) mayKeep() int {
	left := mostKept
	for _, k := range in.kept {
		left -= len(k.b) + keptCost
	}
	return left
}

// keepOf keeps what is in the ring of a flow that is about to end, though its sender goes on.
func (in *inbound) keepOf(f *inflow) {
	f.rx.Stop()
	for left := in.mayKeep(); left > 0; {
		rec, there, err := f.rx.Next()
		if err != nil || !there {
			return
		}
		k := kept{b: make([]byte, rec.Len), stamp: rec.Stamp}
		k.after = f.rx.GiveUp() // what it waits for the kernel's socket has, or nobody
		k.Datagram = in.pull(f, rec, k.b)
		in.kept = append(in.kept, k)
		left -= k.N + keptCost
	}
}

// keep has all senders use the kernel, and keeps what they have published, in its order. The
// program gets that first; where the sender had sent some by the kernel before, it gets those
// before it.
func (in *inbound) keep() {
	in.noBells = false
	in.endBells()
	before := len(in.kept)
	for _, f := range in.flows {
		in.keepOf(f)
	}
	slices.SortStableFunc(in.kept[before:], func(a, b kept) int { return cmp.Compare(int64(a.stamp-b.stamp), 0) })
}

// end ends all flows; why: see drop.
func (in *inbound) end(why connstats.Why) {
	if g := in.setup.end(); g != nil {
		_ = unix.Close(g.Segment)
		_ = unix.Close(g.Bell)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if why == connstats.WhyProgram && !in.ended {
		in.keep()
	}
	in.ended = true
	for len(in.flows) > 0 {
		in.drop(in.flows[0], why)
	}
	in.settle()
}
