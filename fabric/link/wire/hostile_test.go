package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// plenty are credits for all that a test has the other side send.
var plenty = limits{1000, 1000, 1000}

// queued is how many messages wait to be sent. It belongs to the holder of mu.
func (l *Link) queued() (n int) {
	for _, a := range l.lanes {
		n += len(a.queue)
	}
	return n
}

// newVictim returns a NIC with open endpoints, its link, and the other end of the
// medium, where the peer is played by the test.
func newVictim(tb testing.TB) (*nic.NIC, *Link, *PipeEnd) {
	tb.Helper()
	n, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := n.OpenVELO(1, velo.Config{Slots: 8, Credits: 4}); err != nil {
		tb.Fatal(err)
	}
	if _, err := n.OpenRMA(1, rma.Config{}); err != nil {
		tb.Fatal(err)
	}
	if _, err := n.ATU().Register(1, make([]byte, 4096), atu.Read|atu.Write); err != nil {
		tb.Fatal(err)
	}
	a, b, err := Pipe(Faults{}, Faults{})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := Connect(n, 2, a, Config{DownAfter: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_, _ = l.Close(), b.Close()
		<-l.Done()
		_ = n.Close()
	})
	return n, l, b
}

// A peer that breaks the protocol loses its link, at once and with a reason.
func TestBreaches(t *testing.T) {
	open := message{kind: kindOpen, from: 1, to: 1}
	velo8 := message{kind: kindVELO, word: 8 << 40, data: make([]byte, 8)}
	get := message{kind: kindGet, from: 1, to: 1, n: 100}
	put := message{kind: kindPut, from: 1, to: 1, n: 4}
	for name, say := range map[string][]message{
		"message of no flow":        {velo8},
		"message without credit":    {open, velo8, velo8, velo8, velo8, velo8},
		"length and status differ":  {open, {kind: kindVELO, word: 9 << 40, data: make([]byte, 8)}},
		"flow out of order":         {{kind: kindOpen, number: 5, from: 1, to: 1}},
		"flow opened twice":         {open, open},
		"answer to nothing":         {{kind: kindOpened, n: 4}},
		"credit of nothing":         {{kind: kindReturn, word: 1}},
		"end of no flow":            {{kind: kindDown}},
		"data of no GET":            {{kind: kindData, data: []byte{1}}},
		"end of no GET":             {{kind: kindGetEnd}},
		"end of no PUT":             {{kind: kindPutEnd}},
		"data of no PUT":            {{kind: kindPutData, data: []byte{1}}},
		"data of a PUT at 1":        {put, {kind: kindPutData, n: 1, data: []byte{1}}},
		"too much data of a PUT":    {put, {kind: kindPutData, data: make([]byte, 5)}},
		"nothing of a PUT":          {put, {kind: kindPutData}},
		"two PUTs with one number":  {put, put},
		"message of a mailbox shut": {{kind: kindOpen, from: 1, to: 200}, velo8},
	} {
		t.Run(name, func(t *testing.T) {
			_, l, peer := newVictim(t)
			for i, m := range say {
				if err := peer.Send(appendPacket(nil, packet{flags: flagData, seq: uint32(i), limits: plenty, message: m.append(nil)})); err != nil {
					break // it has gone already
				}
			}
			select {
			case <-l.Done():
			case <-time.After(3 * time.Minute):
				t.Fatal("the link is up")
			}
			if !errors.Is(l.Err(), errBreach) {
				t.Errorf("down because of %v", l.Err())
			}
		})
	}
	// Not a breach: bad memory is refused, and the link stays.
	_, l, peer := newVictim(t)
	if err := peer.Send(appendPacket(nil, packet{flags: flagData, limits: plenty, message: get.append(nil)})); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MaxPacket)
	for {
		n, err := peer.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePacket(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		var m message
		if len(p.message) == 0 || m.parse(p.message) != nil {
			continue
		}
		if m.kind != kindGetEnd || m.status != fabric.StatusProtection {
			t.Errorf("answer %+v", m)
		}
		break
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// A peer that has more GETs served than it has credits, uses a tag twice, or acknowledges what it
// gives no credits for, loses its link.
func TestCreditBreaches(t *testing.T) {
	for name, c := range map[string]struct {
		numbers func(i uint32) uint32
		want    string
	}{
		"no credit": {func(i uint32) uint32 { return i }, "without a credit"},
		"tag":       {func(i uint32) uint32 { return i % (maxGets - 1) }, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			n, l, peer := newVictim(t)
			m := fabrictest.Register(t, n, 1, 1<<20, atu.Read)
			nla, err := m.LendAll()
			if err != nil {
				t.Fatal(err)
			}
			for i := range uint32(2 * maxGets) { // the peer takes no answer, so that most are not answered
				get := message{kind: kindGet, number: c.numbers(i), from: 1, to: 1, word: uint64(nla), n: 1 << 20}
				if peer.Send(appendPacket(nil, packet{flags: flagData, seq: i, limits: plenty, message: get.append(nil)})) != nil {
					break
				}
			}
			<-l.Done()
			if err := l.Err(); !errors.Is(err, errBreach) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("down because of %v", err)
			}
			if !m.Revoke() {
				t.Error("a GET that has ended keeps memory")
			}
		})
	}
	_, l, peer := newVictim(t)
	for range Window + 1 {
		l.queueMessage(&message{kind: kindProbe})
	}
	if err := peer.Send(appendPacket(nil, packet{ack: Window})); err != nil {
		t.Fatal(err)
	}
	fabrictest.Eventually(t, "end", func() bool { l.timerFired(); return l.Err() != nil })
	if !strings.Contains(l.Err().Error(), "no credits") {
		t.Error(l.Err())
	}
}

// Who keeps GETs, as it may, and gives no credits for what is posted is found out, too.
func TestStarvedBesideGets(t *testing.T) {
	for name, c := range map[string]struct {
		wait []channel
		want bool
	}{
		"nothing":      {nil, false},
		"a GET":        {[]channel{nonPosted}, false},
		"posted":       {[]channel{posted}, true},
		"both":         {[]channel{nonPosted, posted}, true},
		"an answer":    {[]channel{response}, true},
		"one, another": {[]channel{response, nonPosted}, true},
	} {
		l := &Link{gets: newTags(maxGets)}
		for range 2 { // one is the peer's, one waits or not
			l.gets.takeTag(new(op))
		}
		for _, ch := range c.wait {
			l.lanes[ch].queue = make([]queued, 1)
		}
		if got := l.isStarved(); got != c.want {
			t.Errorf("%s: starved is %v", name, got)
		}
	}
}

// FuzzPeer has a peer send anything: packets whose CRC is right. Nothing may crash or hang.
func FuzzPeer(f *testing.F) {
	var all []byte
	for _, m := range messages() {
		b := m.append(nil)
		all = append(all, byte(len(b)), byte(len(b)>>8))
		all = append(all, b...)
	}
	f.Add(all)
	f.Add([]byte{5, 0, byte(kindOpen), 0, 0, 0, 0})
	var many []byte
	for i := range uint32(2 * maxGets) { // more GETs than tags, with limits that jump
		m := message{kind: kindGet, number: i, from: 1, to: 1, n: 100}
		many = append(append(many, byte(messageLens[kindGet]), byte(i)<<2), m.append(nil)...)
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, l, peer := newVictim(t)
		var seq uint32
		for len(b) > 2 {
			n := min(int(b[0])|int(b[1]&3)<<8, len(b)-2, MaxMessage)
			jump := uint16(b[1]>>2) << 10
			m := b[2 : 2+n]
			b = b[2+n:]
			if n == 0 {
				continue
			}
			if peer.Send(appendPacket(nil, packet{flags: flagData, seq: seq, limits: limits{jump, jump, jump}, message: m})) != nil {
				break
			}
			seq++
		}
		_ = l.Close()
		<-l.Done()
	})
}

// A peer that asks and takes no answer: what waits for it is bounded, and the link goes.
func TestUnread(t *testing.T) {
	refused := message{kind: kindGet, from: 1, to: 1, n: 100}
	put := message{kind: kindPut, from: 1, to: 1, n: 4}
	for name, ask := range map[string]func(i uint32) []message{
		"refused GETs": func(i uint32) []message { m := refused; m.number = i; return []message{m} },
		"small PUTs": func(i uint32) []message {
			p, d := put, message{kind: kindPutData, data: make([]byte, 4)}
			p.number, d.number = i, i
			return []message{p, d}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, l, peer := newVictim(t)
			seq, most := uint32(0), 0
			for i := uint32(0); i < 20000; i++ {
				for _, m := range ask(i) {
					// It acknowledges nothing.
					_ = peer.Send(appendPacket(nil, packet{flags: flagData, seq: seq, message: m.append(nil)}))
					seq++
				}
				l.mu.Lock()
				most = max(most, l.queued())
				l.mu.Unlock()
			}
			select {
			case <-l.Done():
			case <-time.After(3 * time.Minute):
				t.Fatal("the link is up")
			}
			if most > maxPuts {
				t.Errorf("%d messages waited for the peer", most)
			}
			if !errors.Is(l.Err(), errBreach) && !errors.Is(l.Err(), errSilent) {
				t.Errorf("down because of %v", l.Err())
			}
		})
	}
}

// Credits that go back wait as one message for each flow, with the last total.
func TestReturnsMerge(t *testing.T) {
	_, l, peer := newVictim(t)
	f := &inflow{number: 3}
	f.l.Store(l)
	l.mu.Lock()
	l.credits.limit = l.credits.sent // the peer has no buffer
	before := l.queued()
	l.mu.Unlock()
	for n := range uint64(1000) {
		f.Return(n + 1)
	}
	l.mu.Lock()
	n, pending := l.queued()-before, append([]byte(nil), f.pending...)
	l.credits.takeLimits(plenty)
	l.transmitQueued(time.Now())
	l.mu.Unlock()
	var m message
	if pending != nil && (m.parse(pending) != nil || m.word != 1000) || n > 1 {
		t.Errorf("%d messages wait, the last %+v", n, m)
	}
	b := make([]byte, MaxPacket)
	for last, seq := uint64(0), uint32(0); last != 1000; {
		n, err := peer.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePacket(b[:n])
		if err != nil || len(p.message) == 0 || p.seq != seq || m.parse(p.message) != nil {
			continue // sent again
		}
		seq++
		if m.kind == kindReturn && m.word <= last {
			t.Fatalf("%d after %d", m.word, last)
		}
		last = m.word
		_ = peer.Send(appendPacket(nil, packet{ack: seq, limits: plenty}))
	}
}
