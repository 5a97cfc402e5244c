package attach

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/rma"
	"exnet/foreign"
	"exnet/internal/shm"
)

var (
	errDown = fmt.Errorf("attach: %w", fabric.ErrPeerDown)
	errFull = fmt.Errorf("attach: flow full: %w", fabric.ErrAgain)
)

// grant is what a port of this program may use of a peer: the flow to it, and of an RMA port the
// memory. A VELO port's is a link.Remote.
type grant struct {
	port        *port
	peer        wire.Addr
	flow        *shm.Foreign
	slots, size int
	bell        *os.File
	memory      *shm.Foreign // nil of a VELO port
	table       *shm.Foreign
	gone        atomic.Bool

	next   atomic.Uint64 // slots reserved
	seen   atomic.Uint64 // how far the peer was
	stage  [][link.VELOPayload]byte
	credit atomic.Pointer[link.Credit]
	begin  atomic.Uint64 // slots reserved before OpenFlow
	want   atomic.Uint64 // what Watch waits for; 0: nothing
	watch  atomic.Bool   // a goroutine does

	mu      sync.Mutex
	pending uint64 // guarded by mu: notifications that operations which run will write
}

// newGrant takes what came with the answer to a connect.
func (p *port) newGrant(m wire.Message, fds []int) (_ *grant, err error) {
	n, size := wire.Slots(p.unit)
	g := &grant{port: p, peer: m.Addr, slots: n, size: size}
	if len(fds) < 2 || p.unit == fabric.UnitRMA && len(fds) < 4 {
		return nil, fmt.Errorf("attach: connect: %w", wire.ErrMessage)
	}
	whole := wire.FlowHeader + n*size
	if g.flow, err = shm.MapShared(fds[0], whole, whole, unix.F_SEAL_SHRINK, true); err != nil {
		return nil, err
	}
	if p.unit == fabric.UnitRMA {
		if g.memory, err = shm.MapShared(fds[2], wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true); err != nil {
			return nil, err
		}
		if g.table, err = shm.MapShared(fds[3], wire.TableSize, wire.TableSize, unix.F_SEAL_SHRINK, false); err != nil {
			return nil, err
		}
	} else {
		g.stage = make([][link.VELOPayload]byte, n)
	}
	// The flow of a pair is there as long as both are: what was written before the last connect
	// counts.
	at := words(g.flow.Memory(), wire.FlowTail).Load()
	g.next.Store(at)
	g.seen.Store(at)
	g.bell = os.NewFile(uintptr(fds[1]), "bell of a peer")
	fds[1] = -1
	return g, nil
}

// end ends the grant: the peer has, or the port.
func (g *grant) end() {
	if g.gone.Swap(true) {
		return
	}
	_ = g.bell.Close()
	if c := g.credit.Load(); c != nil {
		go (*c).Down() // it may run a handler, which may ask the node something
	}
}

// consumed is how many slots the peer has read; an impossible claim is ignored.
func (g *grant) consumed() uint64 {
	head, seen := words(g.flow.Memory(), wire.FlowHead).Load(), g.seen.Load()
	shm.Observe()
	if head-seen > g.next.Load()-seen {
		return seen
	}
	g.seen.CompareAndSwap(seen, head)
	return head
}

// commitSlot writes the status word of the slot at pos, and how far the flow is.
func (g *grant) commitSlot(pos, word uint64) {
	m := g.flow.Memory()
	shm.Publish()
	words(slotOf(g.flow, pos, g.slots, g.size), 0).Swap(word | phaseOf(pos, g.slots)) // and no Store: see package shm
	tail := words(m, wire.FlowTail)
	for {
		now := tail.Load()
		if int64(pos+1-now) <= 0 || tail.CompareAndSwap(now, pos+1) {
			return
		}
	}
}

// ring wakes the peer if it sleeps.
func (g *grant) ring() {
	armed := &g.flow.Memory().Words32(wire.FlowArmed, 1)[0]
	if armed.Load() == 0 || armed.Swap(0) == 0 {
		return
	}
	raw, err := g.bell.SyscallConn()
	if err != nil {
		return // it has ended
	}
	// A full pipe, or one that nobody reads: it wakes up anyway, or has ended.
	_ = raw.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), []byte{0}) })
}

// ID implements link.Flow: the target gives none.
func (g *grant) ID() uint16 { return 0 }

// Limit implements link.Flow.
func (g *grant) Limit() int { return g.slots }

// Reserve implements link.Flow. The payload is copied when it is committed.
func (g *grant) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	for {
		if g.gone.Load() {
			return nil, 0, errDown
		}
		pos := g.next.Load()
		if pos-g.seen.Load() >= uint64(g.slots) && pos-g.consumed() >= uint64(g.slots) {
			return nil, 0, errFull
		}
		if g.next.CompareAndSwap(pos, pos+1) {
			return &g.stage[pos&uint64(g.slots-1)], pos, nil
		}
	}
}

// Commit implements link.Flow.
func (g *grant) Commit(pos, status uint64) {
	n := status >> boxLen & lenMask
	slotOf(g.flow, pos, g.slots, g.size).Part(8, int(n)).Fill(g.stage[pos&uint64(g.slots-1)][:n])
	g.commitSlot(pos, n<<flowLen|status>>boxTag&tagMask<<flowTag|status>>boxType&typeMask<<flowType|status>>boxMC&1<<flowMC)
	g.port.addCount(wire.CounterSent, 1)
}

// Raise implements link.Flow.
func (g *grant) Raise() { g.ring() }

// Consumed implements link.Remote.
func (g *grant) Consumed() uint64 {
	if n := g.consumed() - g.begin.Load(); int64(n) > 0 {
		return n
	}
	return 0 // the peer is still at what was sent before the flow was opened
}

// The pauses between two looks at what a peer has consumed.
const (
	watchFirst = 20 * time.Microsecond
	watchLast  = 500 * time.Microsecond
)

// Watch implements link.Remote. A peer does not tell what it has read: a goroutine looks.
func (g *grant) Watch(total uint64) {
	g.want.Store(total)
	if g.watch.CompareAndSwap(false, true) {
		go g.waitWatched()
	}
}

// waitWatched is Watch's goroutine.
func (g *grant) waitWatched() {
	for pause := watchFirst; !g.gone.Load(); pause = min(2*pause, watchLast) {
		now := g.Consumed()
		if w := g.want.Load(); w != 0 && int64(now-w) >= 0 && g.want.CompareAndSwap(w, 0) {
			pause = watchFirst
			if c := g.credit.Load(); c != nil {
				(*c).Return(now)
			}
		}
		if g.want.Load() == 0 {
			g.watch.Store(false)
			if g.want.Load() == 0 || !g.watch.CompareAndSwap(false, true) {
				return
			}
		}
		time.Sleep(pause)
	}
}

// takeRoom takes room for a notification of the peer's. It returns false if there is
// none.
func (g *grant) takeRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next.Load()+g.pending-g.consumed() >= uint64(g.slots) {
		return false
	}
	g.pending++
	return true
}

// notify writes a notification that room was taken for, or gives that back.
func (g *grant) notify(write bool, writer, command uint64, at atu.NLA, n int) {
	g.mu.Lock()
	g.pending--
	if write {
		pos := g.next.Add(1) - 1
		s := slotOf(g.flow, pos, g.slots, g.size)
		last := (n-1)%rma.MTU + 1
		words(s, 8).Store(uint64(rma.LastFragment(at, n)))
		words(s, 16).Store(uint64(last-1) | uint64(g.port.vpid&0xff)<<23 | uint64(g.port.node)<<32 | writer<<noteWriter | command<<noteCommand)
		g.commitSlot(pos, 16|uint64(n)<<8)
		g.port.addCount(wire.CounterSent, 1)
	}
	g.mu.Unlock()
	if write {
		g.ring()
	}
}

// eachPiece calls f for the pieces of n bytes at a, while their owner cannot take them back.
func (g *grant) eachPiece(a atu.NLA, n int, access atu.Access, f func(off int, m foreign.Memory) error) fabric.Status {
	busy := words(g.flow.Memory(), wire.FlowBusy)
	busy.Add(1)
	defer busy.Add(^uint64(0))
	all := wire.Memory{VPID: g.peer.VPID, Table: g.table.Memory(), Memory: g.memory.Memory()}
	switch ok, err := all.Each(a, n, access, g.port.node, f); {
	case err != nil:
		return fabric.StatusDevice
	case !ok:
		return fabric.StatusProtection
	}
	return fabric.StatusOK
}

// runPut is a PUT from beginning to end.
func (g *grant) runPut(p link.Put, data []byte) fabric.Status {
	if g.gone.Load() {
		return fabric.StatusPeerDown
	}
	if p.Notify && !g.takeRoom() {
		g.port.addCount(wire.CounterWaits, 1)
		return fabric.StatusOverrun
	}
	s := g.eachPiece(p.Remote, len(data), atu.Write, func(off int, m foreign.Memory) error {
		wire.FillInOrder(m, data[off:])
		return nil
	})
	if p.Notify {
		command := uint64(commandPut)
		if p.Immediate {
			command = commandImmediate
		}
		g.notify(s == fabric.StatusOK, writerCompleter, command, p.Remote, len(data))
	}
	g.counted(s, wire.CounterPut, len(data))
	return s
}

// runGet is a GET from beginning to end.
func (g *grant) runGet(r link.Get, to link.Sink) fabric.Status {
	if g.gone.Load() {
		return fabric.StatusPeerDown
	}
	if r.Notify && !g.takeRoom() {
		g.port.addCount(wire.CounterWaits, 1)
		return fabric.StatusOverrun
	}
	s := g.eachPiece(r.Remote, r.Len, atu.Read, to.Data)
	if r.Notify {
		g.notify(s == fabric.StatusOK, writerResponder, commandGet, r.Remote, r.Len)
	}
	g.counted(s, wire.CounterGot, r.Len)
	return s
}

func (g *grant) counted(s fabric.Status, counter, n int) {
	if s == fabric.StatusOK {
		g.port.addCount(counter, uint64(n))
	} else {
		g.port.addCount(wire.CounterErrors, 1)
	}
}

var _ link.Remote = (*grant)(nil)
