package ports

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/attach/wire"
)

// hosts are servers that reach each other as on different hosts.
type hosts struct {
	mu   sync.Mutex
	all  map[fabric.NodeID]*host
	down bool

	tries atomic.Uint32
}

// host is a server, with what others have sent to it.
type host struct {
	*node
	from  *hosts
	in    chan func()
	ended chan struct{}
	mover *gate
}

// way is the Far of a host.
type way struct {
	*hosts
	self fabric.NodeID
}

func (w way) Reaches(n fabric.NodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[n] != nil && !w.down
}

// onlySession is the session that two servers have with each other.
const onlySession = 1

func (way) Session(fabric.NodeID) (uint64, error) { return onlySession, nil }

func (w way) Send(to fabric.NodeID, session uint64, b []byte) error {
	if !w.Reaches(to) {
		return fabric.ErrPeerDown
	}
	b = append([]byte(nil), b...)
	w.mu.Lock()
	h := w.all[to]
	w.mu.Unlock()
	select {
	case h.in <- func() { h.Hear(w.self, session, b) }:
	case <-h.ended:
	}
	return nil
}

// TrySend finds no credit at times.
func (w way) TrySend(to fabric.NodeID, session uint64, b []byte) error {
	if w.tries.Add(1)%7 == 0 {
		return fabric.ErrAgain
	}
	return w.Send(to, session, b)
}

func (way) Flush(fabric.NodeID) {}

// newHosts starts n servers on hosts of their own.
func newHosts(t *testing.T, n int) (*hosts, []*host) {
	hs := &hosts{all: make(map[fabric.NodeID]*host)}
	list := make([]*host, n)
	cards := fabrictest.New(t, n+1) // nodes begin with 1
	gates := make(map[fabric.NodeID]*gate)
	for i, one := range nodes(t, n, func(c *Config) {
		card := cards[c.Node]
		g := newGate(t, card)
		gates[c.Node] = g
		c.Dial, c.Far, c.Mover = nil, way{hs, c.Node}, g
	}) {
		h := &host{one, hs, make(chan func(), 1<<12), make(chan struct{}), gates[one.cfg.Node]}
		go func() {
			for {
				select {
				case f := <-h.in:
					f()
				case <-h.ended:
					return
				}
			}
		}()
		t.Cleanup(func() { close(h.ended) })
		list[i] = h
		hs.mu.Lock()
		hs.all[one.cfg.Node] = h
		hs.mu.Unlock()
	}
	t.Cleanup(hs.part)
	return hs, list
}

// part takes the ways between the hosts away.
func (hs *hosts) part() {
	hs.mu.Lock()
	hs.down = true
	hs.mu.Unlock()
	for _, h := range hs.all {
		for n := range hs.all {
			h.FarDown(n, onlySession)
		}
	}
}

// Ports of nodes on different hosts reach each other through their nodes.
func TestHosts(t *testing.T) {
	for _, kind := range []string{"plain", "asan"} {
		t.Run(kind, func(t *testing.T) {
			_, all := newHosts(t, 2)
			all[0].run(t, kind, "hosts", all[0].processes, all[1].processes)
			if all[1].mover.count.Load() == 0 {
				t.Error("nothing went by RMA")
			}
			for _, h := range all {
				h.idle(t)
				h.still(t)
				h.mu.Lock()
				for _, f := range h.fars {
					if len(f.pairs) > 0 || len(f.asked) > 0 {
						t.Errorf("%d pairs, %d requests are left", len(f.pairs), len(f.asked))
					}
				}
				h.mu.Unlock()
			}
		})
	}
}

// When the way between two hosts goes, each port is told that its peer has.
func TestHostsPart(t *testing.T) {
	hs, all := newHosts(t, 2)
	server := all[0].start(t, "plain", "peers", "serve")
	client := all[1].start(t, "plain", append([]string{"peers", "hammer"}, strings.Fields(server.line())...)...)
	client.line()
	hs.part()
	if got := client.last(t); got != "gone" {
		t.Errorf("the client said %q", got)
	}
	if got := server.last(t); got != "gone" {
		t.Errorf("the server said %q", got)
	}
	for _, h := range all {
		h.idle(t)
	}
}

// Whatever a node of another host says hurts nobody.
func FuzzHear(f *testing.F) {
	m := wire.Message{Op: wire.OpFarPut, Number: 1, Addr: wire.Addr{Node: 1, VPID: 40}, Unit: fabric.UnitRMA, A: 40, B: wire.Base(40)}
	for _, op := range []wire.Op{wire.OpFarConnect, wire.OpFarGone, wire.OpFarPut, wire.OpFarGet, wire.OpFarTell, wire.OpFarLock, wire.OpFarGive, wire.OpFarTake, wire.OpFarTaken, wire.OpRegister} {
		m.Op = op
		b, _ := m.AppendBinary(nil)
		f.Add(append(b, "data"...))
	}
	var slot [wire.SlotSize]byte
	wire.Slot{From: 40, To: 40, Stream: 1, Word: 4}.Put(&slot)
	f.Add(append(slot[:], "data"...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		s := New(Config{Node: 1, Far: nowhere{}, Registers: &registers{}})
		s.Hear(2, onlySession, b)
		s.FarDown(2, onlySession)
		s.Close()
	})
}

// nowhere is a Far that loses everything.
type nowhere struct{}

func (nowhere) Reaches(fabric.NodeID) bool                  { return true }
func (nowhere) Session(fabric.NodeID) (uint64, error)       { return onlySession, nil }
func (nowhere) Send(fabric.NodeID, uint64, []byte) error    { return fabric.ErrPeerDown }
func (nowhere) TrySend(fabric.NodeID, uint64, []byte) error { return fabric.ErrPeerDown }
func (nowhere) Flush(fabric.NodeID)                         {}
