package relay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"exnet/directsockets/segment"
)

// packet4 is a TCP packet over IPv4 with n bytes of data.
func packet4(from, to netip.AddrPort, flags uint8, n int) []byte {
	p := make([]byte, ip4Len+tcpLen+n)
	p[0], p[ip4ProtoOff] = 0x45, protoTCP
	binary.BigEndian.PutUint16(p[ip4LenOff:], uint16(len(p)))
	copy(p[ip4SrcOff:], from.Addr().AsSlice())
	copy(p[ip4DstOff:], to.Addr().AsSlice())
	fillTCP(p[ip4Len:], from, to, flags)
	return p
}

// packet6 is one over IPv6.
func packet6(from, to netip.AddrPort, flags uint8, n int) []byte {
	p := make([]byte, ip6Len+tcpLen+n)
	p[0], p[ip6ProtoOff] = 0x60, protoTCP
	binary.BigEndian.PutUint16(p[ip6LenOff:], uint16(tcpLen+n))
	copy(p[ip6SrcOff:], from.Addr().AsSlice())
	copy(p[ip6DstOff:], to.Addr().AsSlice())
	fillTCP(p[ip6Len:], from, to, flags)
	return p
}

func fillTCP(t []byte, from, to netip.AddrPort, flags uint8) {
	binary.BigEndian.PutUint16(t, from.Port())
	binary.BigEndian.PutUint16(t[tcpDstOff:], to.Port())
	t[tcpDataOff], t[tcpFlagsOff] = tcpLen/4<<4, flags
}

func TestParsePacket(t *testing.T) {
	a6, b6 := netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:80")
	for _, c := range []struct {
		what string
		p    []byte
		want flow
		says says
	}{
		{"data", packet4(clientAddr, serverAddr, 0x18, 1), flow{clientAddr, serverAddr}, saysMore},
		{"an end", packet4(clientAddr, serverAddr, 0x11, 0), flow{clientAddr, serverAddr}, saysMore},
		{"a reset", packet4(serverAddr, clientAddr, 4, 0), flow{serverAddr, clientAddr}, saysReset},
		{"a reset with data", packet4(serverAddr, clientAddr, 0x14, 1), flow{serverAddr, clientAddr}, saysReset},
		{"an acknowledgement", packet4(clientAddr, serverAddr, 0x10, 0), flow{clientAddr, serverAddr}, saysSame},
		{"a beginning", packet4(clientAddr, serverAddr, 2, 0), flow{}, saysNothing},
		{"IPv6", packet6(a6, b6, 0x18, 100), flow{a6, b6}, saysMore},
		{"IPv6, an acknowledgement", packet6(a6, b6, 0x10, 0), flow{a6, b6}, saysSame},
		{"padding is no data", append(packet4(clientAddr, serverAddr, 0x10, 0), 0, 0), flow{clientAddr, serverAddr}, saysSame},
		{"another version", []byte{0x50, 19: 0}, flow{}, saysNothing},
	} {
		if f, says := parsePacket(c.p); f != c.want || says != c.says {
			t.Errorf("%s: %v, %v", c.what, f, says)
		}
	}
	for _, p := range [][]byte{packet4(clientAddr, serverAddr, 1, 5), packet6(a6, b6, 1, 5)} {
		for n := range p {
			parsePacket(p[:n]) // whatever it says, it stays within
		}
		p[9], p[6] = 17, 17 // UDP
		if _, says := parsePacket(p); says != saysNothing {
			t.Error("UDP is held")
		}
	}
}

func FuzzParsePacket(f *testing.F) {
	f.Add(packet4(clientAddr, serverAddr, 0x18, 3))
	f.Add(packet6(clientAddr, serverAddr, 0x18, 3))
	f.Fuzz(func(t *testing.T, p []byte) {
		before := slices.Clone(p)
		if f, says := parsePacket(p); says != saysNothing && (f.from.Addr().Is4() != f.to.Addr().Is4() || len(p) < ip4Len+tcpLen) {
			t.Errorf("%v of %x", f, p)
		}
		if !slices.Equal(before, p) {
			t.Error("written to")
		}
	})
}

// What a program does on its shadow is seen after what it did in its segment before, also if
// the peer is late.
func TestGate(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	fin := packet4(clientAddr, serverAddr, 0x11, 0)
	other := packet4(clientAddr, netip.MustParseAddrPort("10.0.0.2:81"), 0x11, 0)
	e := hosts[0].engine
	for _, p := range [][]byte{other, packet4(clientAddr, serverAddr, 0x10, 0), packet4(serverAddr, clientAddr, 0x11, 0)} {
		if g, _ := e.Gate(p); g != nil {
			t.Error("a packet is held that need not be")
		}
	}
	for i := range 200 {
		data := pattern(uint64(i), 1+i*300)
		if err := send(t, client, data, true); err != nil {
			t.Fatal(err)
		}
		g, reset := e.Gate(fin)
		if g == nil || reset {
			t.Fatal("not held")
		}
		var readable atomic.Int64
		passed := make(chan struct{})
		if !e.Hold(g, false, func() {
			readable.Store(int64(server.Readable()))
			close(passed)
		}) {
			t.Fatal("dropped")
		}
		<-passed
		if n := readable.Load(); n != int64(len(data)) {
			t.Fatalf("round %d: the packet passes when %d of %d bytes are there", i, n, len(data))
		}
		if _, err := receive(t, server, len(data), true); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Stats(); s.Held != 200 || s.Fences == 0 || s.HeldDropped != 0 {
		t.Errorf("%+v", s)
	}
}

// A gate holds no more than it may, lets all pass in order when its connection ends, and
// forgets it.
func TestGateEnds(t *testing.T) {
	hosts, client, _ := pair(t, segment.Config{}, nil)
	e := hosts[0].engine
	g, _ := e.Gate(packet4(clientAddr, serverAddr, 0x11, 0))
	var got []int
	done := make(chan struct{})
	if err := e.doLater(func() { // nothing else happens meanwhile
		defer close(done)
		for i := range maxHeld + 5 {
			if e.Hold(g, false, func() { got = append(got, i) }) != (i < maxHeld) {
				t.Errorf("packet %d", i)
			}
		}
		if len(got) > 0 {
			t.Errorf("%d passed", len(got))
		}
		for _, c := range e.conns {
			e.endConn(c, actReset)
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	if len(got) != maxHeld || !slices.IsSorted(got) {
		t.Errorf("passed: %v", got)
	}
	if g, _ := e.Gate(packet4(clientAddr, serverAddr, 0x11, 0)); g != nil || e.gates.n.Load() != 0 {
		t.Error("there is a gate still")
	}
	passed := false
	if e.Hold(g, false, func() { passed = true }); !passed {
		t.Error("an open gate holds")
	}
	_ = client
}

// A RST waits like other packets, but where there is no room it passes: TCP sends it once.
func TestGateReset(t *testing.T) {
	hosts, _, _ := pair(t, segment.Config{}, alone)
	e := hosts[0].engine
	g, reset := e.Gate(packet4(clientAddr, serverAddr, 0x14, 0))
	if g == nil || !reset {
		t.Fatal(g, reset)
	}
	goOn := hosts[0].pause(t) // nothing is answered meanwhile
	defer goOn()
	passed := make(chan int, maxHeld+3)
	hold := func(reset bool, i int) bool { return e.Hold(g, reset, func() { passed <- i }) }
	for i := range maxHeld {
		if !hold(i == 0, i) {
			t.Fatal("no room")
		}
	}
	if n := len(passed); n > 0 {
		t.Fatalf("%d of %d passed, where there is room", n, maxHeld)
	}
	if !hold(true, maxHeld) || len(passed) != 1 || <-passed != maxHeld {
		t.Error("a connection has no room, and its RST does not pass")
	}
	e.gates.held.Add(maxAllHeld) // those of others
	defer e.gates.held.Add(-maxAllHeld)
	another := &Gate{all: &e.gates.held, ask: func() {}}
	if !e.Hold(another, false, func() {}) || e.Stats().HeldDropped != 0 {
		t.Error("a node has no room, and the first packet of a connection is dropped")
	}
	if e.Hold(another, true, func() { passed <- -1 }); len(passed) != 1 || <-passed != -1 {
		t.Error("a node has no room, and a RST does not pass")
	}
	if hold(false, 0) || e.Stats().HeldDropped != 1 {
		t.Errorf("%+v", e.Stats())
	}
	goOn()
	for i := range maxHeld {
		if got := <-passed; got != i {
			t.Errorf("packet %d, want %d", got, i)
		}
	}
}

// Only the answer to the last fence lets packets pass.
func TestAnswers(t *testing.T) {
	c := &conn{gate: &Gate{all: new(atomic.Int32)}, fences: 2, asked: 3, before: 5}
	e := new(Engine)
	if e.answerFence(c, 1); c.asked != 3 || c.arrived != 0 {
		t.Errorf("an older answer: %d asked, %d arrived", c.asked, c.arrived)
	}
	if e.answerFence(c, 2); c.asked != 0 || c.arrived != 5 {
		t.Errorf("the answer: %d asked, %d arrived", c.asked, c.arrived)
	}
}
