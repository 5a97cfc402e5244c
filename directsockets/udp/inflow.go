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
	used   bool  // since its sender was last checked: says whether a check is due, and changes nothing else
	early  int64 // since when its first record waits for the kernel's datagrams; 0: it does not. A time limit

	earlyAt uint64 // how many had come by the kernel then
	young   int    // datagrams by the kernel
	late    int    // how often its sender has published for longer than busyTime
}

// announceSocket has the broker know that the socket takes flows.
func (in *inbound) announceSocket() {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.s
	// Of no sender would it know whether it is still there, if it may not ask.
	_, err := peerOf(s.cfg.Local, s.cfg.Local)
	if s.currentOptions().plain || !s.cfg.Receive(s.cfg.Local) || whyNot(err) == connstats.WhyNoDiag {
		in.on(setupExclude)
		return
	}
	if in.on(setupListen) {
		in.announced = s.cfg.Broker.Listen(s.socketOf(), func(wire.Reason) {})
	}
}

// hasOffer reports whether the broker shows a flow for the socket, and the word of its page that
// does.
func (in *inbound) hasOffer() (word uint32, may bool) {
	c := in.s.cfg.Broker
	if !c.FlowsOpen() {
		return 0, false
	}
	return c.MayHaveOffer(wire.UDPBucket(in.port), in.none.Load())
}

// claimFlow asks the broker for it. The caller has mu.
func (in *inbound) claimFlow() {
	word, may := in.hasOffer()
	if !may || !in.on(setupClaim) {
		return
	}
	err := in.s.cfg.Broker.Claim(in.s.socketOf(), func(g client.Granted, err error) {
		go in.takeAnswer(word, g, err) // the client's goroutine does not wait
	})
	if err != nil {
		in.on(setupNone)
	}
}

// takeAnswer begins the flow that the broker grants to a claim, or notes that there is none.
func (in *inbound) takeAnswer(word uint32, g client.Granted, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if errors.Is(err, client.ErrNone) { // else the next broker's page counts from 0
		in.none.Store(word)
	}
	switch {
	case err != nil:
		in.on(setupNone)
	case in.on(setupGrant):
		in.beginFlow(g)
	default: // its sender is told by the end of its doorbell
		_ = unix.Close(g.Segment)
		_ = unix.Close(g.Bell)
	}
}

// beginFlow begins the flow that was granted, or gives it back. The caller has mu, as for all
// that follows.
func (in *inbound) beginFlow(g client.Granted) {
	seg, err := datagram.Map(g.Segment)
	_ = unix.Close(g.Segment)
	if err != nil {
		_ = unix.Close(g.Bell)
		return
	}
	info := seg.Info()
	if info.Nonce != g.Nonce || info.From != g.Key.Client || info.To != g.Key.Server || info.To.Port() != in.port {
		_ = unix.Close(g.Bell)
		seg.Retire()
		return
	}
	if before := in.bySrc[info.From]; before != nil {
		in.finishFlow(before, connstats.WhyNothing)
	}
	if len(in.flows) >= maxFlows {
		in.forgetOver()
	}
	o := in.s.currentOptions()
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
		in.gone += in.uncountedDrops()
	}
	in.flows = append(in.flows, f)
	in.bySrc[info.From] = f
	in.dirty = true
	switch {
	case in.noBells:
		f.rx.EndAfter()
	case o.shareable:
		in.endBells()
	}
	in.nonEmpty.Store(true)
	in.s.tidyLater()
}

// forgetOver forgets flows whose sender is gone and whose ring is empty. It reports whether
// there are others.
func (in *inbound) forgetOver() bool {
	for i := len(in.flows) - 1; i >= 0; i-- {
		if f := in.flows[i]; f.rx.Over() {
			in.dropFlow(f, connstats.WhyNothing)
		}
	}
	return len(in.flows) > 0
}

// checkSenders looks now and then, while datagrams come, whether flows are over, and whether the
// senders are still who they were: a socket that is closed leaves its port to others, but not
// the segment. What was sent until now is still taken.
func (in *inbound) checkSenders() {
	now := shm.Nanotime()
	if time.Duration(now-in.checked) < checkTime {
		return
	}
	in.checked = now
	in.forgetOver()
	for _, f := range slices.Clone(in.flows) {
		info, used := f.rx.Info(), f.used
		f.used = false
		switch {
		case f.phase == inEnded: // while another one was waited for
		case f.phase == inArmed && segment.SwitchedOff(f.entry.Switch()): // after a bell its ring may have records
			f.rx.Arm(true)
			f.on(in, inRing)
			if in.awaitSenders(); f.phase == inRung && !f.rx.Busy() { // else the next check does this again
				in.finishFlow(f, connstats.WhySwitchedOff)
			}
		case used && hasMoved(info.To, info.From, f.cookie):
			in.finishFlow(f, connstats.WhyNothing)
		}
	}
}

// dropFlow closes a flow. why: WhyNothing if one of its sockets has ended.
func (in *inbound) dropFlow(f *inflow, why connstats.Why) {
	f.on(in, inDrop)
	f.rx.Close()
	if why != connstats.WhyNothing {
		f.entry.Set(connstats.ModeDemoted, why)
	}
	f.entry.Free()
	removeFlow(&in.flows, f)
	delete(in.bySrc, f.rx.Info().From)
}

func removeFlow(all *[]*inflow, f *inflow) {
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

// mostKept is how many bytes of datagrams are kept, each with keptCost. What is more is lost, as
// it is when the kernel's queue is full.
const (
	mostKept = 4 << 20
	keptCost = 256
)

// finishFlow closes a flow, and keeps what is in its ring, though its sender may go on.
func (in *inbound) finishFlow(f *inflow, why connstats.Why) {
	left := mostKept
	for _, k := range in.kept {
		left -= len(k.b) + keptCost
	}
	for left > 0 {
		rec, there, err := f.rx.Next()
		if err != nil || !there {
			break
		}
		k := kept{b: make([]byte, rec.Len), stamp: rec.Stamp}
		k.after = f.rx.GiveUp() // what it waits for the kernel's socket has, or nobody
		k.Datagram = in.takeRecord(f, rec, k.b)
		in.kept = append(in.kept, k)
		left -= k.N + keptCost
	}
	in.dropFlow(f, why)
}

// fromKept returns a datagram that was kept. While the kernel's queue has something, one that
// waits for earlier datagrams of its sender is not returned: those are there.
func (in *inbound) fromKept(b []byte) (d Datagram, ok bool) {
	if len(in.kept) == 0 {
		return d, false
	}
	var waiting []netip.AddrPort
	i := slices.IndexFunc(in.kept, func(k kept) bool {
		if k.after > 0 {
			waiting = append(waiting, k.From)
		}
		return !slices.Contains(waiting, k.From)
	})
	if i < 0 && in.kernelReadable() {
		return d, false
	}
	i = max(i, 0) // the kernel has lost what it waits for
	k := in.kept[i]
	copy(in.kept[1:i+1], in.kept[:i])
	in.kept[0] = kept{}
	in.kept = in.kept[1:]
	k.N = copy(b, k.b)
	in.noteAllGiven()
	return k.Datagram, true
}

// keptAfter has what is kept of a sender know that one more of its has come by the kernel.
func (in *inbound) keptAfter(from netip.AddrPort) {
	i := slices.IndexFunc(in.kept, func(k kept) bool { return k.From == from && k.after > 0 })
	if i >= 0 {
		in.kept[i].after--
	}
}

// sleepsOverKept reports whether goroutines sleep in the kernel while datagrams are kept.
func (in *inbound) sleepsOverKept() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.kept) > 0 && in.waiting.Load() > 0
}

// noteAllGiven leaves all receives to the kernel, once the socket has left and the program has
// what was kept.
func (in *inbound) noteAllGiven() {
	if in.phase == setupEnded && len(in.kept) == 0 {
		in.s.plain.Store(true)
	}
}

// endFlows ends all flows, for good. keeps: the program still gets what is in the rings, in the
// order in which it was sent.
func (in *inbound) endFlows(keeps bool, why connstats.Why) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.endFlowsLocked(keeps, why)
}

func (in *inbound) endFlowsLocked(keeps bool, why connstats.Why) {
	if in.announced != nil {
		in.announced.Close()
	}
	in.on(setupEnd)
	if keeps {
		in.noBells = false
		in.endBells()
	}
	before := len(in.kept)
	for len(in.flows) > 0 {
		if f := in.flows[0]; keeps {
			in.finishFlow(f, why)
		} else {
			in.dropFlow(f, why)
		}
	}
	slices.SortStableFunc(in.kept[before:], func(a, b kept) int { return cmp.Compare(int64(a.stamp-b.stamp), 0) })
	in.noteAllGiven()
}
