package lnet

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
)

// pair is two interfaces that the test polls.
type pair struct {
	nics []*nic.NIC
	nis  [2]*NI
	log  [2][]Event
}

func newPair(t *testing.T, cfg Config) *pair { return pairOf(t, fabrictest.New(t, 2), cfg) }

func pairOf(t *testing.T, nics []*nic.NIC, cfg Config) *pair {
	p := &pair{nics: nics}
	for i := range p.nis {
		var err error
		if p.nis[i], err = Open(p.nics[i], cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.nis[i].Close() })
	}
	return p
}

func (p *pair) run() {
	for p.nis[0].Poll(64)+p.nis[1].Poll(64) > 0 {
	}
}

func (p *pair) handler(i int) func(Event) {
	return func(e Event) { p.log[i] = append(p.log[i], e) }
}

func (p *pair) bind(t *testing.T, mem []byte) *MD {
	d, err := p.nis[0].Bind(MemoryDescriptor{Buffer: mem, Threshold: Unlimited, Handler: p.handler(0)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (p *pair) attach(t *testing.T, m Match, d MemoryDescriptor) *MD {
	d.Handler = p.handler(1)
	md, err := p.nis[1].Attach(7, m, d)
	if err != nil {
		t.Fatal(err)
	}
	return md
}

func types(log []Event) string {
	s := ""
	for _, e := range log {
		s += e.Type.String() + " "
		if e.Err != nil {
			s += "(error) "
		}
	}
	return s
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// costs of one operation, of both nodes together.
type costs struct{ velo, gets, puts uint64 }

func (p *pair) costs() (c costs) {
	for _, n := range p.nics {
		s := n.Stats()
		c.velo, c.gets, c.puts = c.velo+s.VELO.Sent, c.gets+s.RMA.Gets, c.puts+s.RMA.Puts
	}
	return c
}

func TestLNetOperations(t *testing.T) {
	for _, tt := range []struct {
		name              string
		size, immediate   int
		get, ack          bool
		want              costs
		initiator, target string
	}{
		{"PUT", 1 << 20, 0, false, false, costs{1, 1, 0}, "SEND ", "PUT "},
		{"PUT of a byte", 1, 0, false, false, costs{1, 1, 0}, "SEND ", "PUT "},
		{"PUT with ACK", 4096, 0, false, true, costs{2, 1, 0}, "SEND ACK ", "PUT "},
		{"GET", 1 << 20, 0, true, false, costs{1, 0, 1}, "SEND REPLY ", "GET "},
		{"GET of 496", 496, 0, true, false, costs{1, 0, 1}, "SEND REPLY ", "GET "},
		{"immediate PUT", 48, MaxImmediate, false, false, costs{1, 0, 0}, "SEND ", "PUT "},
		{"immediate PUT in pieces", MaxImmediate, MaxImmediate, false, true, costs{5, 0, 0}, "SEND ACK ", "PUT "},
		{"immediate GET", 168, MaxImmediate, true, false, costs{3, 0, 0}, "SEND REPLY ", "GET "},
		{"empty PUT", 0, 0, false, true, costs{2, 0, 0}, "SEND ACK ", "PUT "},
		{"empty GET", 0, 0, true, false, costs{2, 0, 0}, "SEND REPLY ", "GET "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, Config{Immediate: tt.immediate})
			near, far := pattern(tt.size), make([]byte, tt.size)
			if tt.get {
				near, far = far, near
			}
			p.attach(t, Match{Any: true, Bits: 0x10, Ignore: 0xf}, MemoryDescriptor{Buffer: far, Threshold: 1, Options: OpPut | OpGet})
			before := p.costs() // registering the handlers costs nothing
			var err error
			if tt.get {
				err = p.nis[0].Get(p.bind(t, near), Request{Target: 1, Portal: 7, MatchBits: 0x1a})
			} else {
				err = p.nis[0].Put(p.bind(t, near), Request{Target: 1, Portal: 7, MatchBits: 0x1a, HdrData: 99, Ack: tt.ack})
			}
			if err != nil {
				t.Fatal(err)
			}
			p.run()
			got := p.costs()
			got = costs{got.velo - before.velo, got.gets - before.gets, got.puts - before.puts}
			if got != tt.want {
				t.Errorf("cost %+v, want %+v", got, tt.want)
			}
			if types(p.log[0]) != tt.initiator || types(p.log[1]) != tt.target {
				t.Errorf("events %s| %s", types(p.log[0]), types(p.log[1]))
			}
			if e := p.log[1][0]; !e.Unlinked || e.Length != tt.size || e.Peer != 0 || e.MatchBits != 0x1a || !tt.get && e.HdrData != 99 {
				t.Errorf("event %+v", e)
			}
			if !bytes.Equal(near, far) {
				t.Error("other bytes have arrived")
			}
			p.idle(t)
		})
	}
}

// idle checks that all credits are back, no memory is registered, and no operation is known.
func (p *pair) idle(t *testing.T) {
	t.Helper()
	for i, ni := range p.nis {
		if ni == nil { // a liar
			continue
		}
		if tx, peer := ni.Credits(fabric.NodeID(1 - i)); tx != DefaultTXCredits || peer != DefaultPeerCredits {
			t.Errorf("node %d: %d TX and %d peer credits", i, tx, peer)
		}
		if n, rest := p.nics[i].Stats().ATU.Regions, len(ni.ops)+len(ni.expected)+len(ni.answers); n != 0 || rest != 0 {
			t.Errorf("node %d: %d regions, %d operations", i, n, rest)
		}
	}
}

func TestLNetPages(t *testing.T) {
	p := newPair(t, Config{})
	const first, size = 100, 3*atu.PageSize + 17
	var lists [2][][]byte
	for i, n := range p.nics {
		mem, err := n.ATU().Alloc(8 * atu.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.ATU().Free(mem) })
		for _, page := range []int{6, 1, 4, 2} { // not in a row
			lists[i] = append(lists[i], mem[page*atu.PageSize:][:atu.PageSize])
		}
	}
	src := MemoryDescriptor{Pages: lists[0], First: first, Length: size, Threshold: 1, Handler: p.handler(0)}
	at := 0
	src.eachPiece(0, size, func(b []byte) { at += copy(b, pattern(size)[at:]) })
	dst := MemoryDescriptor{Pages: lists[1], First: first, Length: size, Threshold: 1, Options: OpPut}
	p.attach(t, Match{Any: true}, dst)
	d, err := p.nis[0].Bind(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7}); err != nil {
		t.Fatal(err)
	}
	p.run()
	var got []byte
	dst.eachPiece(0, size, func(b []byte) { got = append(got, b...) })
	if !bytes.Equal(got, pattern(size)) || types(p.log[1]) != "PUT " {
		t.Errorf("other bytes have arrived; events %s", types(p.log[1]))
	}
	p.idle(t)
}

func TestLNetNak(t *testing.T) {
	for _, size := range []int{0, 100, 5000} {
		for _, ack := range []bool{false, true} {
			t.Run(fmt.Sprint(size, ack), func(t *testing.T) {
				p := newPair(t, Config{})
				p.attach(t, Match{From: 5}, MemoryDescriptor{Buffer: make([]byte, 9000), Threshold: 1, Options: OpPut})
				p.attach(t, Match{Any: true, Bits: 1}, MemoryDescriptor{Buffer: make([]byte, 9000), Threshold: 1, Options: OpPut})
				p.attach(t, Match{Any: true}, MemoryDescriptor{Buffer: make([]byte, 9000), Threshold: 1, Options: OpGet})
				d := p.bind(t, make([]byte, size))
				if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7, Ack: ack}); err != nil {
					t.Fatal(err)
				}
				if err := p.nis[0].Get(d, Request{Target: 1, Portal: 8}); err != nil {
					t.Fatal(err)
				}
				p.run()
				naks, last := 0, p.log[0][len(p.log[0])-1]
				for _, e := range p.log[0] {
					if errors.Is(e.Err, ErrNoMatch) {
						naks++
					}
				}
				want := 2
				if size == 0 && !ack {
					want = 1 // nobody waits for it
				}
				if naks != want || !errors.Is(last.Err, ErrNoMatch) || len(p.log[1]) != 0 {
					t.Errorf("%d NAKs, want %d; events %s| %s", naks, want, types(p.log[0]), types(p.log[1]))
				}
				p.idle(t)
			})
		}
	}
}

func TestLNetCredits(t *testing.T) {
	p := newPair(t, Config{})
	p.attach(t, Match{Any: true}, MemoryDescriptor{Buffer: make([]byte, 20*4096), Threshold: Unlimited, Options: OpPut})
	d := p.bind(t, make([]byte, 4096))
	for range 20 {
		if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if tx, peer := p.nis[0].Credits(1); tx != DefaultTXCredits-8 || peer != 8-20 {
		t.Errorf("%d TX and %d peer credits", tx, peer)
	}
	if n := p.nics[0].Stats().VELO.Sent; n != 8 {
		t.Errorf("%d adverts sent, want 8", n)
	}
	p.run()
	if len(p.log[1]) != 20 {
		t.Fatalf("events %s", types(p.log[1]))
	}
	for i, e := range p.log[1] { // the target manages the offset
		if e.Offset != i*4096 {
			t.Errorf("PUT %d at %d", i, e.Offset)
		}
	}
	p.idle(t)
}

func TestLNetTXCredits(t *testing.T) {
	nics := fabrictest.New(t, 4)
	ni, err := Open(nics[0], Config{TXCredits: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer ni.Close()
	events := 0
	d, _ := ni.Bind(MemoryDescriptor{Buffer: make([]byte, 64), Threshold: Unlimited, Handler: func(Event) { events++ }})
	var others []*NI
	for i := range 3 {
		o, err := Open(nics[i+1], Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		others = append(others, o)
		for range 2 {
			if err := ni.Put(d, Request{Target: fabric.NodeID(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tx, _ := ni.Credits(1); tx != -4 {
		t.Errorf("%d TX credits, want -4", tx)
	}
	for ni.Poll(64)+others[0].Poll(64)+others[1].Poll(64)+others[2].Poll(64) > 0 {
	}
	if tx, _ := ni.Credits(1); events != 6 || tx != 2 {
		t.Errorf("%d events, %d TX credits", events, tx)
	}
}

func TestLNetUnlink(t *testing.T) {
	p := newPair(t, Config{})
	d := p.attach(t, Match{Any: true}, MemoryDescriptor{Buffer: make([]byte, 64), Threshold: Unlimited, Options: OpPut})
	d.Unlink()
	busy := p.bind(t, make([]byte, 64))
	if err := p.nis[0].Put(busy, Request{Target: 1, Portal: 7}); err != nil {
		t.Fatal(err)
	}
	busy.Unlink()
	p.run()
	if types(p.log[1]) != "UNLINK " || types(p.log[0]) != "SEND (error) " || !p.log[0][0].Unlinked {
		t.Errorf("events %s| %s", types(p.log[0]), types(p.log[1]))
	}
	if err := p.nis[0].Put(busy, Request{Target: 1}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Put of an unlinked descriptor: %v", err)
	}
	p.idle(t)
}

func TestLNetPeerGone(t *testing.T) {
	p := newPair(t, Config{})
	d := p.bind(t, make([]byte, 64))
	for range 20 { // 8 are advertised, 12 wait for credits
		if err := p.nis[0].Get(d, Request{Target: 1, Portal: 7}); err != nil {
			t.Fatal(err)
		}
	}
	p.nis[0].Expire(time.Now())
	p.nis[0].Poll(64)
	if len(p.log[0]) != 0 {
		t.Fatalf("events before the timeout: %s", types(p.log[0]))
	}
	if err := p.nis[1].Close(); err != nil {
		t.Fatal(err)
	}
	p.nis[0].Expire(time.Now().Add(2 * DefaultTimeout))
	p.nis[0].Poll(64)
	if n := len(p.log[0]); n != 20 {
		t.Fatalf("%d events: %s", n, types(p.log[0]))
	}
	for _, e := range p.log[0] {
		if e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
	if err := p.nis[0].Put(d, Request{Target: 9}); err != nil {
		t.Fatal(err)
	}
	p.nis[0].Poll(64)
	if e := p.log[0][20]; !errors.Is(e.Err, fabric.ErrNoRoute) {
		t.Errorf("to nobody: %v", e.Err)
	}
	p.idle(t)
}

// TestLNetLinks moves memory that all links lend.
func TestLNetLinks(t *testing.T) {
	for _, l := range append(fabrictest.Links(), fabrictest.StreamLinks()...) {
		t.Run(l.Name, func(t *testing.T) {
			p := pairOf(t, l.New(t, 2), Config{})
			var mem [2][]byte
			for i, n := range p.nics {
				var err error
				if mem[i], err = n.ATU().Alloc(MaxPayload); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { n.ATU().Free(mem[i]) })
			}
			copy(mem[0], pattern(MaxPayload))
			p.attach(t, Match{Any: true}, MemoryDescriptor{Buffer: mem[1], Threshold: Unlimited, Options: OpPut | OpGet | ManageRemote})
			d := p.bind(t, mem[0])
			until := func(what, initiator, target string) {
				t.Helper()
				fabrictest.Eventually(t, what, func() bool {
					p.run()
					return len(p.log[0]) > 0 && p.log[0][0].Err != nil || len(types(p.log[0])) >= len(initiator) && len(types(p.log[1])) >= len(target)
				})
			}
			for { // a peer may not be known yet
				if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7, Len: 1}); err != nil {
					t.Fatal(err)
				}
				until("the peer is known", "SEND ", "")
				failed := p.log[0][0].Err != nil
				if p.log[0] = nil; !failed {
					break
				}
			}
			until("the first PUT has arrived", "", "PUT ")
			p.log = [2][]Event{}
			before := p.costs()
			if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7, Ack: true}); err != nil {
				t.Fatal(err)
			}
			until("PUT", "SEND ACK ", "PUT ")
			if !bytes.Equal(mem[1], pattern(MaxPayload)) {
				t.Error("PUT: other bytes have arrived")
			}
			clear(mem[0])
			if err := p.nis[0].Get(d, Request{Target: 1, Portal: 7}); err != nil {
				t.Fatal(err)
			}
			until("GET", "SEND ACK SEND REPLY ", "PUT GET ")
			if !bytes.Equal(mem[0], pattern(MaxPayload)) {
				t.Error("GET: other bytes have arrived")
			}
			got := p.costs()
			if got = (costs{got.velo - before.velo, got.gets - before.gets, got.puts - before.puts}); got != (costs{3, 1, 1}) {
				t.Errorf("cost %+v", got)
			}
			for _, ni := range p.nis {
				if s := ni.Stats(); s.Unmatched+s.BadMessages+s.Naks != 0 {
					t.Errorf("%+v", s)
				}
			}
			fabrictest.Eventually(t, "all is released", func() bool {
				p.run()
				return p.nics[0].Stats().ATU.Regions+p.nics[1].Stats().ATU.Regions == 0
			})
			p.idle(t)
		})
	}
}
