package stream

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

const (
	victimID = fabric.NodeID(1)
	peerID   = fabric.NodeID(2)
	hang     = 3 * time.Minute // a guard: nothing is measured by it
)

// victim is a NIC with open endpoints and its link, whose peer is played by the test.
type victim struct {
	nic    *nic.NIC
	link   *Link
	region *atu.Region
	nla    atu.NLA
	peer   []net.Conn // the other ends, after the hellos
}

func newNIC(tb testing.TB, id fabric.NodeID) *nic.NIC {
	tb.Helper()
	n, err := nic.New(nic.Config{Node: id})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = n.Close() }) // a test may have closed it
	return n
}

func tcp(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err == nil {
		b, err = ln.Accept()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func newVictim(tb testing.TB, conns int, cfg Config) *victim {
	tb.Helper()
	v := &victim{nic: newNIC(tb, victimID)}
	if _, err := v.nic.OpenVELO(1, velo.Config{Slots: 8, Credits: 4}); err != nil {
		tb.Fatal(err)
	}
	if _, err := v.nic.OpenRMA(1, rma.Config{}); err != nil {
		tb.Fatal(err)
	}
	var err error
	if v.region, err = v.nic.ATU().Register(1, make([]byte, 2*chunkSize), atu.Read|atu.Write); err != nil {
		tb.Fatal(err)
	}
	if v.nla, err = v.region.Lend(peerID); err != nil {
		tb.Fatal(err)
	}
	cfg.Peer = peerID
	if cfg.DownAfter == 0 {
		cfg.DownAfter = hang
	}
	for range conns {
		a, b := tcp(tb)
		cfg.Conns, v.peer = append(cfg.Conns, a), append(v.peer, b)
	}
	var greeted sync.WaitGroup
	greeted.Go(func() {
		for _, c := range v.peer {
			greetVictim(tb, c, nil)
		}
	})
	v.link, err = New(v.nic, cfg)
	greeted.Wait()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = v.link.Close() // it may be down
		<-v.link.Done()
	})
	return v
}

// greetVictim answers the victim's hello, with what change makes of the answer.
func greetVictim(tb testing.TB, c net.Conn, change func(*hello)) {
	var b [helloLen]byte
	var h hello
	if _, err := io.ReadFull(c, b[:]); err != nil {
		tb.Error(err)
		return
	}
	if err := h.decode(&b); err != nil {
		tb.Error(err)
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(h.boxes)*helloBoxLen); err != nil {
		tb.Error(err)
	}
	h.node, h.peer, h.boxes = h.peer, h.node, 0
	if change != nil {
		change(&h)
	}
	_, _ = c.Write(h.append(nil)) // it may have gone
}

// down waits until the link is down.
func (v *victim) down(t *testing.T, why error) {
	t.Helper()
	select {
	case <-v.link.Done():
	case <-time.After(hang):
		t.Fatal("the link is up")
	}
	if !errors.Is(v.link.Err(), why) {
		t.Errorf("down because of %v, want %v", v.link.Err(), why)
	}
	if !v.region.Revoke() {
		t.Error("the region stays busy")
	}
	if s := v.link.serving.owed.Load(); s < 0 {
		t.Errorf("%d operations owed", s)
	}
}

func data(m message, n int) []byte { return append(m.append(nil), make([]byte, n)...) }

// breaches are what a peer may not send, each alone on a fresh link.
func breaches(nla uint64) map[string][]byte {
	say := func(list ...message) (b []byte) {
		for _, m := range list {
			b = m.append(b)
		}
		return b
	}
	open := message{kind: kindOpen, from: 1, to: 1}
	velo8 := message{kind: kindVELO, word: 8 << 40, payload: make([]byte, 8)}
	put := message{kind: kindPutData, from: 1, to: 1, word: nla, n: chunkSize + 10, off: chunkSize}
	other := put
	other.word++
	return map[string][]byte{
		"kind unknown":             {200, 0, 0, 0},
		"message of no flow":       say(velo8),
		"message without credit":   say(open, velo8, velo8, velo8, velo8, velo8),
		"flow out of order":        say(message{kind: kindOpen, flow: 5, from: 1, to: 1}),
		"flow opened twice":        say(open, open),
		"credit of nothing":        say(message{kind: kindReturn, word: 1}),
		"end of no flow":           say(message{kind: kindDown}),
		"data of no GET":           say(message{kind: kindGetData}),
		"end of no GET":            say(message{kind: kindGetEnd, status: fabric.StatusPeerDown}),
		"end of no PUT":            say(message{kind: kindPutEnd}),
		"chunk that came before":   append(data(put, 10), data(put, 10)...),
		"chunk of another PUT":     append(data(put, 10), data(other, 10)...),
		"PUT of too much":          say(message{kind: kindPutData, n: rma.MaxTransfer + 1}),
		"pong without a ping":      say(message{kind: kindPong, word: 12345}),
		"too many PUTs at a time":  tooMany(put),
		"mailbox that cannot be":   say(message{kind: kindMailbox, flow: 1000}),
		"VELO message of 127 byte": say(message{kind: kindVELO, word: 127 << 40}),
	}
}

// tooMany begins more PUTs than there may be.
func tooMany(put message) (b []byte) {
	for i := range uint32(2*maxOps + 1) {
		put.op = i
		b = append(b, data(put, 10)...)
	}
	return b
}

// A peer that breaks the protocol loses its link, at once and with a reason, and nothing
// stays lent to it.
func TestBreaches(t *testing.T) {
	for name := range breaches(0) {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t, 1, Config{})
			_, _ = v.peer[0].Write(breaches(uint64(v.nla))[name]) // it may have gone already
			v.down(t, ErrBreach)
		})
	}
	t.Run("message on a connection for data", func(t *testing.T) {
		v := newVictim(t, 2, Config{})
		_, _ = v.peer[1].Write((&message{kind: kindPing}).append(nil))
		v.down(t, ErrBreach)
	})
}

// What breaks no rule is answered, whatever it asks for, and in whatever pieces it comes.
func TestRefusals(t *testing.T) {
	for _, step := range []int{1, 7, 1 << 20} {
		v := newVictim(t, 1, Config{})
		var b []byte
		for i, m := range []message{
			{kind: kindGet, from: 1, to: 1, n: 100},                           // no such memory
			{kind: kindGet, from: 1, to: 9, word: uint64(v.nla), n: 100},      // no such VPID
			{kind: kindGet, from: 999, to: 1, word: uint64(v.nla), n: 100},    // from nobody
			{kind: kindGet, from: 1, to: 1, word: uint64(v.nla), n: 9 * 1024}, // well
			{kind: kindPutData, from: 1, to: 1, n: 100},                       // no such memory
			{kind: kindPutData, from: 1, to: 1, word: uint64(v.nla), n: 100},  // well
		} {
			m.op = uint32(i)
			b = m.append(b)
			if m.kind == kindPutData {
				b = append(b, make([]byte, 100)...)
			}
		}
		go func() {
			for len(b) > 0 {
				n, err := v.peer[0].Write(b[:min(step, len(b))])
				if err != nil {
					t.Error(err)
					return
				}
				b = b[n:]
			}
		}()
		got := make(map[uint32]fabric.Status)
		buf := make([]byte, 0, 64<<10)
		for len(got) < 6 {
			k, err := v.peer[0].Read(buf[len(buf):cap(buf)])
			if err != nil {
				t.Fatal(err, got)
			}
			buf = buf[:len(buf)+k]
			for {
				var m message
				n, err := m.decode(buf)
				if err != nil {
					t.Fatal(err)
				}
				if m.kind == kindGetData && n > 0 {
					n += 9 * 1024
				}
				if n == 0 || n > len(buf) {
					break
				}
				buf = append(buf[:0], buf[n:]...)
				switch m.kind {
				case kindGetData, kindGetEnd, kindPutEnd:
					got[m.op] = m.status
				}
			}
		}
		for i, want := range []fabric.Status{
			fabric.StatusProtection, fabric.StatusNoVPID, fabric.StatusProtection, fabric.StatusOK,
			fabric.StatusProtection, fabric.StatusOK,
		} {
			if got[uint32(i)] != want {
				t.Errorf("operation %d: %v, want %v", i, got[uint32(i)], want)
			}
		}
		if v.link.Err() != nil {
			t.Error(v.link.Err())
		}
	}
}

// Strangers get an error, and New nothing of theirs.
func TestStrangers(t *testing.T) {
	noise := make([]byte, 1<<20)
	for name, tt := range map[string]struct {
		play func(c net.Conn)
		want error
	}{
		"noise":           {func(c net.Conn) { _, _ = c.Write(noise) }, ErrHello},
		"nothing":         {func(net.Conn) {}, ErrHello},
		"hangs up":        {func(c net.Conn) { c.Close() }, ErrHello},
		"another version": {func(c net.Conn) { greetVictim(t, c, func(h *hello) { h.version++ }) }, ErrVersion},
		"another node":    {func(c net.Conn) { greetVictim(t, c, func(h *hello) { h.node++ }) }, ErrHello},
		"for another":     {func(c net.Conn) { greetVictim(t, c, func(h *hello) { h.peer++ }) }, ErrHello},
		"another session": {func(c net.Conn) { greetVictim(t, c, func(h *hello) { h.session++ }) }, ErrHello},
		"more connections": {func(c net.Conn) {
			greetVictim(t, c, func(h *hello) { h.conns++ })
		}, ErrHello},
		"another index": {func(c net.Conn) { greetVictim(t, c, func(h *hello) { h.index++ }) }, ErrHello},
		"many mailboxes": {func(c net.Conn) {
			greetVictim(t, c, func(h *hello) { h.boxes = fabric.VPIDs + 1 })
		}, ErrHello},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNIC(t, victimID)
			a, b := tcp(t)
			var played sync.WaitGroup
			played.Go(func() { tt.play(b) })
			timeout := hang
			if name == "nothing" {
				timeout = 20 * time.Millisecond
			}
			l, err := New(n, Config{Peer: peerID, Conns: []net.Conn{a}, HelloTimeout: timeout})
			if l != nil || !errors.Is(err, tt.want) {
				t.Errorf("%v, %v", l, err)
			}
			if _, err := a.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is still there: %v", err)
			}
			played.Wait()
			if n.Routes().Port(peerID) != nil {
				t.Error("there is a way to the stranger")
			}
		})
	}
}

// A peer that asks and does not read costs a bounded amount of memory, and in the end its
// link. Another peer's link stays as it is.
func TestPeerThatDoesNotRead(t *testing.T) {
	v := newVictim(t, 1, Config{})
	get := (&message{kind: kindGet, from: 1, to: 1, n: 100}).append(nil) // refused, at once
	asked := 0
	for v.link.Err() == nil {
		var b []byte
		for range 1000 {
			b = append(append(b, get...), (&message{kind: kindPing, word: 1}).append(nil)...)
		}
		if _, err := v.peer[0].Write(b); err != nil {
			break
		}
		asked += 1000
		v.link.out.mu.Lock()
		n := len(v.link.out.ctl)
		v.link.out.mu.Unlock()
		if n > 5*ctlLimit {
			t.Fatalf("%d bytes wait after %d requests", n, asked)
		}
	}
	v.down(t, ErrBreach)
}

// GETs that are not read do not pile up either: they are counted.
func TestPeerThatDoesNotReadData(t *testing.T) {
	v := newVictim(t, 1, Config{})
	var b []byte
	for i := range uint32(4 * maxOps) {
		b = (&message{kind: kindGet, op: i, from: 1, to: 1, word: uint64(v.nla), n: 2 * chunkSize}).append(b)
	}
	_, _ = v.peer[0].Write(b)
	v.down(t, ErrBreach)
}

// A peer that says nothing is down after DownAfter, one that talks but never answers after
// ten times as long. The beats are played: no time passes.
func TestSilence(t *testing.T) {
	v := newVictim(t, 1, Config{Heartbeat: time.Hour, DownAfter: 3 * time.Hour})
	l, b := v.link, &v.link.beat
	for first := false; !first; time.Sleep(time.Millisecond) { // the one that the timer plays
		b.mu.Lock()
		first = b.asked != 0
		b.mu.Unlock()
	}
	now := time.Now()
	beats := func(talks bool) (n int) {
		for {
			n++
			if talks {
				l.count.RxBytes.Add(1)
			}
			now = now.Add(time.Hour)
			if _, dead := b.nextBeat(l, now); dead || n > 1000 {
				return n
			}
		}
	}
	b.mu.Lock()
	b.silent, b.asked, b.open = 0, 0, 0
	b.mu.Unlock()
	if n := beats(false); n != 4 {
		t.Errorf("dead after %d beats of silence, want 4", n)
	}
	b.mu.Lock()
	b.silent, b.asked, b.open = 0, 0, 0
	b.mu.Unlock()
	if n := beats(true); n < 30 || n > 32 {
		t.Errorf("dead after %d beats without an answer, want 30 to 32", n)
	}
	// What has come and was not read is no silence.
	b.mu.Lock()
	b.silent, b.asked, b.open = 0, 0, 0
	b.mu.Unlock()
	l.pumping.Lock() // somebody reads, and is slow
	for range 20 {
		now = now.Add(time.Hour)
		if _, dead := b.nextBeat(l, now); dead {
			t.Fatal("dead although this side does not read")
		}
	}
	l.pumping.Unlock()
}

// A peer that is silent is down, as the timer has it; one that lives stays.
func TestSilentPeer(t *testing.T) {
	v := newVictim(t, 1, Config{Heartbeat: 2 * time.Millisecond, DownAfter: 10 * time.Millisecond})
	v.down(t, ErrSilent)
}
