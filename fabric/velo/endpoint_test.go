package velo_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/velo"
	"exnet/internal/racetest"
)

const vpid = fabric.VPID(1)

// pair returns the mailboxes vpid of the nodes 0 and 1 of a new fabric.
func pair(tb testing.TB, cfg velo.Config) (x, y *velo.Endpoint) {
	tb.Helper()
	nics := fabrictest.New(tb, 2)
	return fabrictest.OpenVELO(tb, nics[0], vpid, cfg), fabrictest.OpenVELO(tb, nics[1], vpid, cfg)
}

func to(n fabric.NodeID) velo.Descriptor { return velo.Descriptor{Dst: n, VPID: vpid} }

// read takes n messages out of e, and fails if there are fewer.
func read(tb testing.TB, e *velo.Endpoint, n int) {
	tb.Helper()
	for i := range n {
		if _, _, ok := e.Peek(); !ok {
			tb.Fatalf("message %d of %d is missing", i+1, n)
		}
		e.Advance()
	}
}

// drain takes all messages out of e and returns their number.
func drain(e *velo.Endpoint) (n int) {
	for {
		if _, _, ok := e.Peek(); !ok {
			return n
		}
		e.Advance()
		n++
	}
}

func TestConfig(t *testing.T) {
	n := fabrictest.NewNIC(t, 0)
	for _, cfg := range []velo.Config{
		{Slots: -1}, {Slots: 3}, {Slots: 1 << 17}, {Credits: -1}, {Slots: 4, Credits: 5}, {Credits: 1025},
	} {
		if _, err := n.OpenVELO(vpid, cfg); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := n.OpenVELO(256, velo.Config{}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("VPID 256: %v", err)
	}
	e := fabrictest.OpenVELO(t, n, vpid, velo.Config{})
	if e.VPID() != vpid {
		t.Errorf("VPID %d", e.VPID())
	}
	if _, err := n.OpenVELO(vpid, velo.Config{}); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("open twice: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("close twice: %v", err)
	}
	fabrictest.OpenVELO(t, n, vpid, velo.Config{Slots: 1})
}

func TestMessage(t *testing.T) {
	x, y := pair(t, velo.Config{})
	if _, _, ok := y.Peek(); ok {
		t.Fatal("message in a new mailbox")
	}
	y.Advance() // without a message: nothing
	for _, n := range []int{1, 8, 119, 120} {
		msg := bytes.Repeat([]byte{byte(n)}, n)
		d := velo.Descriptor{Dst: 1, VPID: vpid, Tag: uint8(n), Type: uint8(n % 16)}
		if err := x.Send(d, msg); err != nil {
			t.Fatal(err)
		}
		clear(msg) // Send has copied
		st, p, ok := y.Peek()
		if !ok {
			t.Fatalf("%d bytes did not arrive", n)
		}
		if want := (velo.Status{Src: 0, SrcVPID: vpid, Len: uint8(n), Tag: d.Tag, Type: d.Type}); st != want {
			t.Errorf("status %+v, want %+v", st, want)
		}
		if !bytes.Equal(p, bytes.Repeat([]byte{byte(n)}, n)) || cap(p) != n {
			t.Errorf("%d bytes: payload % x, capacity %d", n, p, cap(p))
		}
		if again, _, ok := y.Peek(); !ok || again != st {
			t.Error("Peek is not repeatable")
		}
		y.Advance()
		y.Advance() // once is enough
	}
	if n := drain(y); n != 0 {
		t.Errorf("%d messages too many", n)
	}
	if s := y.Stats(); s.Received != 4 {
		t.Errorf("received %d", s.Received)
	}
	if s := x.Stats(); s.Sent != 4 {
		t.Errorf("sent %d", s.Sent)
	}
}

func TestSendChecksArguments(t *testing.T) {
	x, y := pair(t, velo.Config{})
	ok := []byte{1}
	for _, tt := range []struct {
		name    string
		d       velo.Descriptor
		payload []byte
		want    error
	}{
		{"empty", to(1), nil, fabric.ErrInvalid},
		{"too long", to(1), make([]byte, 121), fabric.ErrInvalid},
		{"type", velo.Descriptor{Dst: 1, VPID: vpid, Type: 16}, ok, fabric.ErrInvalid},
		{"VPID", velo.Descriptor{Dst: 1, VPID: 256}, ok, fabric.ErrInvalid},
		{"group", velo.Descriptor{Multicast: true, Group: 64, VPID: vpid}, ok, fabric.ErrInvalid},
		{"VPID not open", velo.Descriptor{Dst: 1, VPID: 7}, ok, fabric.ErrPeerDown},
		{"no such node", to(9), ok, fabric.ErrNoRoute},
	} {
		if err := x.Send(tt.d, tt.payload); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := x.SendMulticast(velo.Descriptor{Group: 64, VPID: vpid}, ok); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("SendMulticast: %v", err)
	}
	if _, err := x.SendMulticastSkip(velo.Descriptor{Group: 64, VPID: vpid}, ok); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("SendMulticastSkip: %v", err)
	}
	if n := drain(y); n != 0 {
		t.Errorf("%d messages arrived", n)
	}
	if s := x.Stats(); s.Sent != 0 || s.PeerDown != 1 || s.NoRoute != 1 {
		t.Errorf("counters %+v", s)
	}
	if n := x.Credits(9, vpid); n != 0 {
		t.Errorf("%d credits for nobody", n)
	}
}

func TestLoopback(t *testing.T) {
	x, _ := pair(t, velo.Config{})
	if err := x.Send(to(0), []byte("self")); err != nil {
		t.Fatal(err)
	}
	st, p, ok := x.Peek()
	if !ok || st.Src != 0 || string(p) != "self" {
		t.Errorf("%+v, %q, %v", st, p, ok)
	}
	x.Advance()
}

// Many goroutines on several nodes send to one mailbox; the messages of each
// arrive complete and in order.
func TestOrderPerSender(t *testing.T) {
	const nodes, perNode, each = 3, 2, 3000
	nics := fabrictest.New(t, nodes+1)
	dst := fabrictest.OpenVELO(t, nics[nodes], vpid, velo.Config{Slots: 256, Credits: 64})
	var wg sync.WaitGroup
	for i := range nodes {
		e := fabrictest.OpenVELO(t, nics[i], vpid, velo.Config{})
		credit := make(chan struct{}, perNode)
		e.OnCredit(func(fabric.NodeID) {
			for range perNode {
				select {
				case credit <- struct{}{}:
				default:
				}
			}
		})
		for g := range perNode {
			wg.Go(func() {
				msg := make([]byte, 16)
				for seq := range uint64(each) {
					binary.LittleEndian.PutUint64(msg, uint64(g))
					binary.LittleEndian.PutUint64(msg[8:], seq)
					for {
						err := e.Send(to(nodes), msg)
						if err == nil {
							break
						}
						if !errors.Is(err, fabric.ErrAgain) {
							t.Error(err)
							return
						}
						<-credit
					}
				}
			})
		}
	}
	next := make(map[string]uint64)
	for n := 0; n < nodes*perNode*each; {
		st, p, ok := dst.Peek()
		if !ok {
			runtime.Gosched()
			continue
		}
		id := fmt.Sprint(st.Src, p[0])
		if seq := binary.LittleEndian.Uint64(p[8:]); seq != next[id] {
			t.Fatalf("sender %s: message %d, want %d", id, seq, next[id])
		}
		next[id]++
		dst.Advance()
		n++
	}
	wg.Wait()
	if n := drain(dst); n != 0 {
		t.Errorf("%d messages too many", n)
	}
}

func TestCloseWhileOthersSend(t *testing.T) {
	nics := fabrictest.New(t, 3)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	x2 := fabrictest.OpenVELO(t, nics[2], vpid, velo.Config{})
	var stop atomic.Bool
	var wg sync.WaitGroup
	var again, down, sent atomic.Int64
	for _, e := range []*velo.Endpoint{x, x2, x} {
		wg.Go(func() {
			for !stop.Load() {
				switch err := e.Send(to(1), []byte("hello")); {
				case err == nil:
					sent.Add(1)
				case errors.Is(err, fabric.ErrAgain):
					again.Add(1)
				case errors.Is(err, fabric.ErrPeerDown):
					down.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		y := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{Slots: 8})
		for range 200 {
			drain(y)
		}
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("sent %d, again %d, down %d", sent.Load(), again.Load(), down.Load())
	if s := nics[0].Stats().VELO.Sent + nics[2].Stats().VELO.Sent; s < uint64(sent.Load()) {
		t.Errorf("counter says %d sent", s)
	}
}

func TestSendAfterClose(t *testing.T) {
	x, y := pair(t, velo.Config{})
	if err := x.Send(to(1), []byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Send(to(1), []byte{1}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	d := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}
	if err := x.SendMulticast(d, []byte{1}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("SendMulticast: %v", err)
	}
	if _, err := x.SendMulticastSkip(d, []byte{1}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("SendMulticastSkip: %v", err)
	}
	if _, err := x.WantCredits(1, vpid, 1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("WantCredits: %v", err)
	}
	read(t, y, 1) // what was sent arrives
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	nics := fabrictest.New(t, 4)
	var eps []*velo.Endpoint
	for _, n := range nics {
		eps = append(eps, fabrictest.OpenVELO(t, n, vpid, velo.Config{Slots: 8, Credits: 2}))
	}
	x, y := eps[0], eps[1]
	y.OnInterrupt(func() {})
	msg := func() []byte { return make([]byte, 32) }
	group := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}
	for name, f := range map[string]func(){
		"send, peek, advance": func() {
			y.EnableInterrupt()
			if err := x.Send(to(1), msg()); err != nil { // msg must not escape
				t.Fatal(err)
			}
			read(t, y, 1)
			drain(y)
		},
		"refused": func() {
			for x.Send(to(1), msg()) == nil {
			}
			drain(y)
		},
		"credits": func() {
			if x.Credits(1, vpid) != 2 || x.GroupCredits(fabric.GroupBroadcast, vpid) != 2 {
				t.Fatal("wrong number of credits")
			}
			if ok, err := x.WantCredits(1, vpid, 2); !ok || err != nil {
				t.Fatal(ok, err)
			}
		},
		"multicast": func() {
			if err := x.SendMulticast(group, msg()); err != nil {
				t.Fatal(err)
			}
			for _, e := range eps[1:] {
				if drain(e) != 1 {
					t.Fatal("multicast did not arrive")
				}
			}
		},
		"multicast, refused and skipped": func() {
			for x.SendMulticast(group, msg()) == nil {
			}
			drain(eps[2])
			if n, err := x.SendMulticastSkip(group, msg()); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			for _, e := range eps[1:] {
				drain(e)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f() // opens the flows
			if n := testing.AllocsPerRun(200, f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
