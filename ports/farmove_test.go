package ports

import (
	"bytes"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/nic"
	"exnet/internal/shm"
	"exnet/node/rpc"
	"exnet/node/rpc/far"
)

// gate is a Mover whose operations stop where a test says: before they begin, or when they have
// moved their bytes and nobody knows it yet.
type gate struct {
	*far.Mover
	nic    *nic.NIC
	count  atomic.Int64
	before atomic.Pointer[stop]
	after  atomic.Pointer[stop]
}

// stop holds operations: each says that it is there, and waits.
type stop struct{ there, over chan struct{} }

func newStop() *stop { return &stop{make(chan struct{}, 1), make(chan struct{})} }

func (s *stop) wait() {
	if s == nil {
		return
	}
	select {
	case s.there <- struct{}{}:
	default:
	}
	<-s.over
}

func newGate(t *testing.T, n *nic.NIC) *gate {
	m, err := far.NewMover(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // the test may have closed it
	return &gate{Mover: m, nic: n}
}

func (g *gate) through(move func() error) error {
	g.count.Add(1)
	g.before.Load().wait()
	defer g.after.Load().wait()
	return move()
}

func (g *gate) Get(mem []byte, from fabric.NodeID, at atu.NLA) error {
	return g.through(func() error { return g.Mover.Get(mem, from, at) })
}

func (g *gate) Put(mem []byte, to fabric.NodeID, at atu.NLA) error {
	return g.through(func() error { return g.Mover.Put(mem, to, at) })
}

// still waits until the node lends no memory to the NIC.
func (h *host) still(t *testing.T) {
	t.Helper()
	eventually(t, "memory stays registered", func() bool { return h.mover.nic.ATU().Stats().Regions == 0 })
}

// end is a port of a test with its memory, of which the first pages are registered.
type end struct {
	conn   *net.UnixConn
	at     wire.Addr
	memory *shm.Foreign
	table  *shm.Foreign
	out    flow // to the peer
	bell   int
	in     flow // from it
}

const movePages = 3*farPart/wire.PageSize + 8

func (h *host) open(t *testing.T) *end {
	t.Helper()
	e := new(end)
	var err error
	var fds rpc.Descriptors
	e.conn, e.at, fds = h.openPort(t, fabric.UnitRMA)
	if e.memory, err = shm.MapShared(fds[2], wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.memory.Retire)
	if e.table, err = shm.MapShared(fds[3], wire.TableSize, wire.TableSize, unix.F_SEAL_SHRINK, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.table.Retire)
	e.register(true)
	return e
}

// register registers the pages, every second one after the next, or none of them any more.
func (e *end) register(on bool) {
	for i := range movePages {
		entry := uint64(0)
		if on {
			entry = uint64(i^1) + 1
		}
		e.table.Memory().Words(0, movePages)[i].Store(entry)
	}
}

// bytes copies or fills n bytes of the registered memory, in the order of its addresses.
func (e *end) bytes(n int, b []byte) []byte {
	all := e.memory.Memory()
	got := make([]byte, 0, n)
	for i := 0; len(got) < n; i++ {
		page := all.Part(wire.ArenaOff+(i^1)*wire.PageSize, min(wire.PageSize, n-len(got)))
		if b != nil {
			page.Fill(b[len(got):])
		}
		got = page.AppendTo(got)
	}
	return got
}

// connect connects the port to another.
func (e *end) connect(t *testing.T, to *end) {
	t.Helper()
	r, fds := askAll(t, e.conn, wire.Message{Op: wire.OpConnect, Unit: fabric.UnitRMA, Addr: to.at})
	for r.Op == wire.OpFlow { // the way back comes first
		var err error
		if e.in, err = mapFlow(fabric.UnitRMA, fds[0]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.in.memory.Retire)
		r, fds = hearAll(t, e.conn)
	}
	if r.Status != wire.StatusOK {
		t.Fatalf("connect: %+v", r)
	}
	var err error
	if e.out, err = mapFlow(fabric.UnitRMA, fds[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.out.memory.Retire)
	e.bell = fds[1]
}

// post has the node do an operation of n bytes at the beginning of both ports' memory.
func (e *end) post(t *testing.T, kind uint64, n int, read, write uint64) {
	t.Helper()
	s := e.out.slot()
	s.PutUint64(8, read)
	s.PutUint64(16, write)
	shm.Publish()
	s.Words(0, 1)[0].Store(16 | uint64(n)<<opSize | kind<<opKind | 7<<opSpec | e.out.phase())
	e.out.pos++
	if _, err := unix.Write(e.bell, []byte{0}); err != nil {
		t.Fatal(err)
	}
}

// note returns the next notification's error bits; false: there is none.
func (e *end) note() (bad uint64, ok bool) {
	s := e.in.slot()
	word := s.Words(0, 1)[0].Load()
	shm.Observe()
	if word&wire.Phase != e.in.phase() {
		return 0, false
	}
	bad = s.Words(16, 1)[0].Load() >> 61
	e.in.pos++
	return bad, true
}

// pattern is what a test moves.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// The memory of both ends is in pages that do not follow one another, and the sizes are around the
// parts in which it moves.
func TestMoveSizes(t *testing.T) {
	_, all := newHosts(t, 2)
	a, b := all[0].open(t), all[1].open(t)
	a.connect(t, b)
	for i, n := range []int{1, farLeast - 1, farLeast, farLeast + 1, farLeast + 12, farPart - 4, farPart, farPart + 1, farPart + 12, 3 * farPart} {
		for _, get := range []bool{true, false} {
			what := fmt.Sprintf("GET %v of %d bytes", get, n)
			mine, theirs := pattern(n, 2*i), pattern(n, 2*i+1)
			a.bytes(n, mine)
			b.bytes(n, theirs)
			kind, read, write, want := uint64(kindPut), wire.Base(a.at.VPID), wire.Base(b.at.VPID), mine
			if get {
				kind, read, write, want = kindGet, write, read, theirs
			}
			a.post(t, kind, n, read, write)
			notes := 1 // the requester's
			if get {
				notes = 2
			}
			for range notes {
				eventually(t, what+" does not end", func() bool {
					bad, ok := a.note()
					if bad != 0 {
						t.Errorf("%s: error %d", what, bad)
					}
					return ok
				})
			}
			for _, e := range []*end{a, b} {
				if !bytes.Equal(e.bytes(n, nil), want) {
					t.Errorf("%s: other bytes", what)
				}
			}
		}
	}
	a.conn.Close()
	b.conn.Close()
	for _, h := range all {
		h.idle(t)
		h.still(t)
	}
}

// Either end may end at each step of a transfer: before the bytes move, and when they have moved
// and nobody knows it yet. The other end is told once, right bytes or an error, and nothing stays.
func TestMoveEnds(t *testing.T) {
	const size = 2*farPart + 100
	for _, kind := range []uint64{kindGet, kindPut} {
		for _, step := range []string{"before", "after"} {
			for _, what := range []string{"nothing", "session", "mover", "ours", "theirs", "our memory", "their memory"} {
				t.Run(fmt.Sprintf("%d-%s-%s", kind, step, what), func(t *testing.T) {
					hs, all := newHosts(t, 2)
					a, b := all[0].open(t), all[1].open(t)
					a.connect(t, b)
					data := pattern(size, 1)
					read, write := wire.Base(a.at.VPID), wire.Base(b.at.VPID)
					if kind == kindGet {
						read, write = write, read
						b.bytes(size, data)
					} else {
						a.bytes(size, data)
					}
					held := newStop()
					if g := all[1].mover; step == "before" { // the far end moves the bytes
						g.before.Store(held)
					} else {
						g.after.Store(held)
					}
					a.post(t, kind, size, read, write)
					<-held.there
					switch what {
					case "session":
						hs.part()
					case "mover":
						go all[1].mover.Close()
					case "ours":
						a.conn.Close()
						all[0].idle(t)
					case "theirs":
						b.conn.Close()
						all[1].idle(t)
					case "our memory":
						a.register(false)
					case "their memory":
						b.register(false)
					}
					close(held.over)
					if what != "ours" {
						a.ends(t, kind, what == "nothing", data, b)
					}
					a.conn.Close()
					b.conn.Close()
					for _, h := range all {
						h.idle(t)
						h.still(t)
					}
				})
			}
		}
	}
}

// ends waits until a learns how its operation has ended: by a notification, or as its peer has. If
// it was done the bytes are there.
func (e *end) ends(t *testing.T, kind uint64, must bool, data []byte, to *end) {
	t.Helper()
	var bad uint64
	eventually(t, "the operation does not end", func() bool {
		var ok bool
		bad, ok = e.note()
		return ok || e.gone()
	})
	switch {
	case must && bad != 0:
		t.Errorf("error %d", bad)
	case bad != 0 || e.gone():
		return
	}
	got := e.bytes(len(data), nil)
	if kind == kindPut {
		got = to.bytes(len(data), nil)
	}
	if !bytes.Equal(got, data) {
		t.Error("done, with other bytes")
	}
}

// gone returns whether the node has said that a peer has ended, and leaves that unread.
func (e *end) gone() bool {
	raw, err := e.conn.SyscallConn()
	if err != nil {
		return true
	}
	found := false
	_ = raw.Control(func(fd uintptr) {
		b := make([]byte, wire.MessageSize)
		n, _, err := unix.Recvfrom(int(fd), b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		var m wire.Message
		found = err == nil && n == len(b) && m.UnmarshalBinary(b) == nil && m.Op == wire.OpGone
	})
	return found
}

// A far node asks for what it may not have, and for more at once than it may.
func TestMoveHostile(t *testing.T) {
	_, all := newHosts(t, 2)
	a, b := all[0].open(t), all[1].open(t)
	a.connect(t, b)
	base := wire.Base(b.at.VPID)
	ask := func(m wire.Message, data ...byte) wire.Status {
		m.Addr, m.Unit, m.A, m.Number = b.at, fabric.UnitRMA, uint64(a.at.VPID), 4711
		s, c := all[0].Server, make(chan farMessage, 1)
		s.mu.Lock()
		s.fars[all[1].cfg.Node].asked[m.Number|rpc.Answered] = c
		s.mu.Unlock()
		raw, _ := m.AppendBinary(nil)
		all[1].Hear(all[0].cfg.Node, onlySession, append(raw, data...))
		return (<-c).Status
	}
	for _, c := range []struct {
		what string
		m    wire.Message
		data []byte
		want wire.Status
	}{
		{"no bytes", wire.Message{Op: wire.OpFarGive, B: base}, nil, wire.StatusInvalid},
		{"too many", wire.Message{Op: wire.OpFarGive, B: base, C: farPart + 1}, nil, wire.StatusInvalid},
		{"more than all", wire.Message{Op: wire.OpFarTake, B: base, C: 1 << 63}, nil, wire.StatusInvalid},
		{"a long tail", wire.Message{Op: wire.OpFarTake, B: base, C: 8}, make([]byte, 9), wire.StatusInvalid},
		{"a tail of a GET", wire.Message{Op: wire.OpFarGive, B: base, C: 8}, make([]byte, 8), wire.StatusInvalid},
		{"not registered", wire.Message{Op: wire.OpFarGive, B: base + movePages*wire.PageSize - 4, C: 8}, nil, wire.StatusDenied},
		{"another port", wire.Message{Op: wire.OpFarTake, B: base + 1<<30, C: 8}, nil, wire.StatusDenied},
		{"memory that is not lent", wire.Message{Op: wire.OpFarTake, B: base, C: 8, D: 12345}, nil, wire.StatusDenied},
		{"the same for a GET", wire.Message{Op: wire.OpFarGive, B: base, C: 8, D: 1 << 63}, nil, wire.StatusDenied},
	} {
		if got := ask(c.m, c.data...); got != c.want {
			t.Errorf("%s: status %d, want %d", c.what, got, c.want)
		}
	}
	for _, h := range all {
		h.still(t)
	}
}

// setMover changes the Mover of a server that runs.
func (n *node) setMover(m Mover) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Mover = m
}

// A far node that moves nothing by RMA gets messages.
func TestMoveWithout(t *testing.T) {
	_, all := newHosts(t, 2)
	all[1].setMover(nil)
	a, b := all[0].open(t), all[1].open(t)
	a.connect(t, b)
	data := pattern(farPart+5000, 3)
	b.bytes(len(data), data)
	a.post(t, kindGet, len(data), wire.Base(b.at.VPID), wire.Base(a.at.VPID))
	a.ends(t, kindGet, true, data, b)
	if n := all[0].mover.count.Load() + all[1].mover.count.Load(); n != 0 {
		t.Errorf("%d operations by RMA", n)
	}
}

// A far node of a release that knows no such requests, and would deny them, is not asked: it has
// not said that it knows them.
func TestMoveOlder(t *testing.T) {
	n, l := liesTo(t)
	got := make(chan wire.Message, 64)
	l.yes(n, 0, func(m wire.Message) error { got <- m; return nil })
	n.setMover(newGate(t, fabrictest.NewNIC(t, 1)))
	e := (&host{node: n}).open(t)
	e.connect(t, &end{at: wire.Addr{Node: farAway, VPID: 40}})
	e.post(t, kindGet, farPart, wire.Base(40), wire.Base(e.at.VPID))
	if m := <-got; m.Op != wire.OpFarGet {
		t.Errorf("asked for %d, want %d", m.Op, wire.OpFarGet)
	}
}

// A far node is asked for as much at once as it has said that it moves.
func TestMoveParts(t *testing.T) {
	for features, want := range map[uint64]uint64{farMoves: farPartOld, farMoves | farLarge: farPart} {
		n, l := liesTo(t)
		got := make(chan wire.Message, 64)
		l.yes(n, features, func(m wire.Message) error { got <- m; return nil })
		n.setMover(newGate(t, fabrictest.NewNIC(t, 1)))
		e := (&host{node: n}).open(t)
		for i := range movePages { // in order: a piece is as large as can be
			e.table.Memory().Words(0, movePages)[i].Store(uint64(i) + 1)
		}
		e.connect(t, &end{at: wire.Addr{Node: farAway, VPID: 40}})
		e.post(t, kindGet, farPart, wire.Base(40), wire.Base(e.at.VPID))
		if m := <-got; m.Op != wire.OpFarGive || m.C != want {
			t.Errorf("features %d: asked by %d for %d bytes, want %d", features, m.Op, m.C, want)
		}
	}
}
