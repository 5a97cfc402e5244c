package mesh

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
)

func rumor(n int, token emp.Token) Rumor {
	return Rumor{Node: fabric.NodeID(n), Token: token, Since: int64(token), Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), DefaultPort)}
}

func newTestBook(self, seeds int) *book {
	b := newBook(rumor(self, 1), seeds)
	b.rnd = rand.New(rand.NewPCG(1, 2))
	return b
}

func TestBookAttempts(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newTestBook(5, 1)
	at := func(d time.Duration) []target { return b.takeDue(now.Add(d)) }
	if due := at(0); len(due) != 1 || due[0].seed != 0 || len(at(0)) != 0 {
		t.Errorf("the seed, once: %v", due)
	}
	b.noteDialed(now, target{seed: 0}, 3, true)
	b.noteConnected(now, rumor(3, 1))
	if due := at(time.Hour); len(due) != 0 {
		t.Errorf("it is there: %v", due)
	}
	// The higher ID goes first.
	b.learnRumors(now, 3, []Rumor{rumor(2, 1), rumor(9, 1), rumor(5, 7)})
	if due := at(settle); len(due) != 1 || due[0].node != 2 {
		t.Errorf("%v", due)
	}
	due := at(yield)
	if len(due) != 1 || due[0].node != 9 {
		t.Fatalf("%v", due)
	}
	// Attempts that fail come later and later, but not too late.
	late := now
	for range 20 {
		b.noteDialed(late, due[0], 0, false)
		before := late
		for due = b.takeDue(late); len(due) == 0; due = b.takeDue(late) {
			late = late.Add(50 * time.Millisecond)
			if late.Sub(before) > 2*lastRetry {
				t.Fatal("not tried again")
			}
		}
	}
	if b.nodes[9].try.wait != lastRetry {
		t.Errorf("%v", b.nodes[9].try.wait)
	}
	b.noteDialed(late, due[0], 0, false)
	// Somebody reached it: it is tried soon.
	if !b.learnRumors(late, 3, []Rumor{rumor(9, 1)}) || b.nodes[9].try.next.Sub(late) > firstRetry*5/4 {
		t.Errorf("%v", b.nodes[9].try)
	}
	// Nobody speaks of it for long: forgotten.
	if b.takeDue(late.Add(forget + time.Minute)); b.nodes[9] != nil {
		t.Error("not forgotten")
	}
}

func TestBookLives(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newTestBook(5, 0)
	b.noteConnected(now, rumor(2, 10))
	digest := b.digest
	b.learnRumors(now, 3, []Rumor{rumor(2, 20)})
	if !b.isUp(2) || b.nodes[2].Token != 10 {
		t.Error("a rumor ends a connection")
	}
	b.noteDown(now, 2)
	b.learnRumors(now, 3, []Rumor{rumor(2, 5)})
	if b.nodes[2].Token != 10 {
		t.Error("an earlier life is believed")
	}
	b.learnRumors(now, 3, []Rumor{rumor(2, 20)})
	if e := b.nodes[2]; e.Token != 10 || e.try.next.Sub(now) > yield || e.try.wait != 0 || b.isUp(2) {
		t.Errorf("a later life is believed before it is met, or not looked for: %+v", e)
	}
	b.noteConnected(now, rumor(2, 20))
	if b.digest == digest {
		t.Error("the digest does not tell lives apart")
	}
	b.noteLeaving(now, 2)
	if b.learnRumors(now, 3, []Rumor{rumor(2, 20)}); b.nodes[2] != nil || len(b.ups) != 0 || b.digest != b.self.digestSum() {
		t.Errorf("it has left: %+v", b.nodes[2])
	}
	if b.learnRumors(now, 3, []Rumor{rumor(2, 30)}); b.nodes[2] == nil {
		t.Error("it may come back")
	}
	for i := range 2 * maxTellers {
		r := rumor(3, 1)
		r.Endpoint = netip.AddrPortFrom(r.Endpoint.Addr(), uint16(1+i))
		b.learnRumors(now, fabric.NodeID(10+i), []Rumor{r})
		b.learnRumors(now, 10, []Rumor{r})
	}
	if n := len(b.nodes[3].endpoints()); n != maxTellers {
		t.Errorf("%d addresses", n)
	}
}

func TestGate(t *testing.T) {
	now := time.Unix(1000, 0)
	var g gate
	in := func(a string) bool { return g.takePlace(now, netip.MustParseAddr(a)) }
	for i := range maxPerSource {
		if !in("192.0.2.1") {
			t.Fatalf("%d", i)
		}
	}
	if in("192.0.2.1") || !in("192.0.2.2") {
		t.Error("the bound is that of a source")
	}
	g.giveBack(now, netip.MustParseAddr("192.0.2.1"), caller{believed: true})
	if !in("::ffff:192.0.2.1") || in("192.0.2.1") {
		t.Error("one place was given back")
	}
	g.giveBack(now, netip.MustParseAddr("192.0.2.1"), caller{})
	if in("192.0.2.1") {
		t.Error("a stranger's place is free at once")
	}
	now = now.Add(penance)
	if !in("192.0.2.1") {
		t.Error("and never again")
	}
	for i := range maxPerSource { // one IPv6 network
		if a := netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}); !g.takePlace(now, a) {
			t.Fatalf("%v", a)
		}
	}
	if in("2001::ff") || !in("2001:0:0:1::") {
		t.Error("the bound is that of a network")
	}
	for i := 0; g.total < maxHalfOpen; i++ {
		if !g.takePlace(now, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})) {
			t.Fatal(i)
		}
	}
	if in("198.51.100.1") {
		t.Error("more than there may be")
	}
}

// A member that comes all the time has its places back as slowly as a stranger; others do not
// notice.
func TestGatePacesMembers(t *testing.T) {
	now := time.Unix(1000, 0)
	at := netip.MustParseAddr("192.0.2.1")
	var g gate
	// come is how many of n visits of a node gave their place back at once.
	come := func(n int, who caller) (free int) {
		for range n {
			if !g.takePlace(now, at) {
				t.Fatal("no place")
			}
			before := g.total
			g.giveBack(now, at, who)
			free += before - g.total
		}
		return free
	}
	seven := caller{believed: true, certified: true, node: 7}
	if n := come(burst+8, seven); n != burst {
		t.Errorf("%d visits at once, want %d", n, burst)
	}
	if n := come(2*burst, caller{believed: true}); n != 2*burst {
		t.Errorf("%d visits without a certificate", n)
	}
	if n := come(8, caller{believed: true, certified: true, node: 8}); n != 8 {
		t.Errorf("%d visits of another member", n)
	}
	now = now.Add(penance)
	if n := come(refill+4, seven); n != refill {
		t.Errorf("%d visits a second later, want %d", n, refill)
	}
	now = now.Add(-time.Hour) // a clock that is set back gives nothing
	if n := come(1, seven); n != 0 {
		t.Errorf("%d visits before", n)
	}
	now = now.Add(3 * time.Hour)
	if n := come(burst+1, seven); n != burst {
		t.Errorf("%d visits after a rest, want %d", n, burst)
	}
	now = now.Add(time.Hour)
	for i := range 3 * maxAllowances {
		g.takeAllowance(now, fabric.NodeID(100+i))
		now = now.Add(time.Second)
	}
	if len(g.members) > maxAllowances {
		t.Errorf("%d allowances are kept", len(g.members))
	}
}

func TestMessages(t *testing.T) {
	digest := uint64(1) << 63
	groups := []netip.Addr{}
	m := news{Rumors: []Rumor{rumor(3, 1<<63)}, Digest: &digest, Reply: true, Groups: &groups}
	b, err := appendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var back news
	if err := receiveMessage(bytes.NewReader(b), maxMessage, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("%+v, %v, want %+v", back, err, m)
	}
	for n := range b {
		err := receiveMessage(bytes.NewReader(b[:n]), maxMessage, new(news))
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if err := receiveMessage(bytes.NewReader(b), 10, new(news)); !errors.Is(err, emp.ErrHello) {
		t.Errorf("too long: %v", err)
	}
	all := make([]Rumor, maxRumors)
	for i := range all {
		all[i] = Rumor{65535, 1<<64 - 1, -1 << 63, netip.AddrPortFrom(netip.AddrFrom16([16]byte(bytes.Repeat([]byte{0xfe}, 16))), 65535)}
	}
	if _, err := appendMessage(nil, news{Rumors: all, Reply: true}); err != nil {
		t.Error(err)
	}
}

func FuzzReceive(f *testing.F) {
	for _, m := range []any{news{Rumors: []Rumor{rumor(3, 4)}}, news{Leave: true}, hello{Kind: kindControl, Fabric: "lab", Self: emp.Description{Node: 3}}} {
		b, err := appendMessage(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n news
		if receiveMessage(bytes.NewReader(b), maxMessage, &n) == nil {
			newTestBook(1, 0).learnRumors(time.Unix(1000, 0), 3, n.Rumors)
		}
		var h hello
		_ = receiveMessage(bytes.NewReader(b), maxHello, &h)
	})
}
