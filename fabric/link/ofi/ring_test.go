package ofi

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/foreigntest"
)

func testRing(tb testing.TB) *ring {
	tb.Helper()
	r, err := newRing()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.close)
	return r
}

func rung(fd int) bool {
	var count [8]byte
	_, err := unix.Read(fd, count[:])
	return err == nil
}

// echo is a helper that sends everything back.
func (r *ring) echo() (n int) {
	for done := r.words[txDone].Load(); done < r.words[txTold].Load(); done++ {
		told := r.words[rxTold].Load()
		if told-r.words[rxDone].Load() == ringSlots {
			return n
		}
		size := r.lens[done%ringSlots].Load()
		buf := make([]byte, size)
		r.mem.Part(ringData+int(done%ringSlots)*slotSize, int(size)).CopyTo(buf)
		slot := told % ringSlots
		r.mem.Part(ringData+int(ringSlots+slot)*slotSize, int(size)).Fill(buf)
		r.lens[ringSlots+slot].Store(size)
		r.words[rxTold].Store(told + 1)
		r.words[txDone].Store(done + 1)
		n++
	}
	return n
}

// What is sent comes back, however it is cut, and however long the receiver waits.
func TestRing(t *testing.T) {
	r := testRing(t)
	random := mrand.New(mrand.NewPCG(1, 2))
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	var got []byte
	sent := 0
	for len(got) < len(data) {
		var parts [][]byte
		for at := sent; at < len(data) && len(parts) < 9; {
			n := min(random.IntN(2*slotSize), len(data)-at)
			parts = append(parts, data[at:at+n])
			at += n
		}
		n, err := r.send(parts)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		r.echo()
		for random.IntN(8) > 0 {
			place, more := make([]byte, random.IntN(slotSize)), make([]byte, 1+random.IntN(slotSize))
			n, err := r.receive(place, more)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, place[:min(n, len(place))]...)
			got = append(got, more[:max(0, n-len(place))]...)
		}
	}
	if !bytes.Equal(got, data) {
		t.Error("something else comes back")
	}
}

// A helper that changes each byte as soon as it was read changes nothing of what is received, in
// whatever pieces. A receiver that begins a message anew is found.
func TestReadOnce(t *testing.T) {
	r := testRing(t)
	data := make([]byte, 3*slotSize)
	_, _ = rand.Read(data)
	for again := range 2 {
		if n, err := r.send([][]byte{data}); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
		r.echo()
		reads := foreigntest.Watch(t, foreigntest.Flip)
		var got []byte
		place, more := make([]byte, 100), make([]byte, 10000)
		for planted := again == 1; len(got) < len(data); planted = false {
			n, err := r.receive(place, more)
			if err != nil {
				t.Fatal(err)
			}
			if planted {
				r.taken -= n
				continue
			}
			got = append(got, place[:min(n, len(place))]...)
			got = append(got, more[:max(0, n-len(place))]...)
		}
		reads.Stop()
		read, twice := reads.Bytes()
		if read != len(data) || twice > 0 != (again == 1) || bytes.Equal(got, data) != (again == 0) {
			t.Errorf("planted fault %d: %d bytes read, %d of them again, received as sent: %v", again, read, twice, bytes.Equal(got, data))
		}
	}
}

// Nobody is woken who does not sleep, and who sleeps is, once.
func TestRingBells(t *testing.T) {
	r := testRing(t)
	send := func() {
		t.Helper()
		if n, err := r.send([][]byte{{1}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	send()
	if rung(r.wake) {
		t.Error("a helper that is awake was woken")
	}
	r.words[sleeps].Store(1)
	send()
	send()
	if !rung(r.wake) || rung(r.wake) || r.words[sleeps].Load() != 0 {
		t.Error("a helper that sleeps was not woken once")
	}
	if r.armSent(); !rung(r.bell) {
		t.Error("there is room, and nobody says so")
	}
	for range ringSlots - 3 {
		send()
	}
	if n, err := r.send([][]byte{{1}}); n != 0 || err != nil {
		t.Errorf("sent %d (%v) without room", n, err)
	}
	if r.armSent(); rung(r.bell) || r.words[txWaits].Load() != 1 {
		t.Error("there is no room, and somebody says so")
	}
	if !r.armReceived() || r.words[rxWaits].Load() != 1 {
		t.Error("nothing has come, and it cannot be waited for")
	}
	r.echo()
	if r.armReceived() {
		t.Error("something has come, and would be waited for")
	}
	// A helper that sleeps with too few receives is woken when there are slots for more.
	r.words[sleeps].Store(1)
	r.words[rxPosted].Store(ringSlots)
	for i := range ringSlots / 4 {
		if rung(r.wake) {
			t.Errorf("woken for %d slots", i)
		}
		if n, err := r.receive(make([]byte, 8), nil); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !rung(r.wake) {
		t.Error("not woken for a quarter of the slots")
	}
}

// Whatever a helper writes, at whatever moment, is refused or a message.
func TestHostileRing(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *ring)
	}{
		{"more received than there are slots", func(r *ring) { r.words[rxTold].Store(ringSlots + 1) }},
		{"received backwards", func(r *ring) { r.words[rxTold].Store(^uint64(0)) }},
		{"an empty message", func(r *ring) { r.words[rxTold].Store(1) }},
		{"a long message", func(r *ring) { r.lens[ringSlots].Store(slotSize + 1); r.words[rxTold].Store(1) }},
		{"a longer message", func(r *ring) { r.lens[ringSlots].Store(1 << 31); r.words[rxTold].Store(1) }},
	} {
		r := testRing(t)
		tt.do(r)
		if n, err := r.receive(make([]byte, 10), make([]byte, 10)); n != 0 || !errors.Is(err, ErrHelper) {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
	}
	for _, done := range []uint64{1, ringSlots, ^uint64(0) - ringSlots, 1 << 63} {
		r := testRing(t)
		r.words[txDone].Store(done)
		if n, err := r.send([][]byte{{1}}); n != 0 || !errors.Is(err, ErrHelper) {
			t.Errorf("%d were sent of none: %d, %v", done, n, err)
		}
	}
	// The length of a message that is being taken is that which was checked.
	r := testRing(t)
	r.lens[ringSlots].Store(100)
	r.words[rxTold].Store(1)
	got := 0
	for i := range 10 {
		r.lens[ringSlots].Store(uint32(slotSize * i))
		n, err := r.receive(make([]byte, 4), make([]byte, 6))
		if got += n; err != nil || n > 10 || i > 0 && n != 10 {
			break
		}
	}
	if got > slotSize {
		t.Errorf("%d bytes of a message of 100", got)
	}
}

func FuzzRing(f *testing.F) {
	f.Add([]byte{2, 1, 0, 0, 0, 0, 0, 0, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, script []byte, step uint8) {
		r := testRing(t)
		for len(script) >= 9 {
			v := binary.LittleEndian.Uint64(script[1:])
			if k := int(script[0]); k < ringWords {
				r.words[k].Store(v)
			} else {
				r.lens[k%len(r.lens)].Store(uint32(v))
			}
			script = script[9:]
			buf := make([]byte, int(step)*300)
			if n, err := r.receive(buf[:len(buf)/2], buf[len(buf)/2:]); n < 0 || n > len(buf) || err != nil && n != 0 {
				t.Fatal(n, err)
			}
			if n, err := r.send([][]byte{buf}); n < 0 || n > len(buf) || err != nil && n != 0 {
				t.Fatal(n, err)
			}
			r.armSent()
			r.armReceived()
		}
	})
}

// The messages keep what they are given, and show nothing that is not fit to be shown.
func TestMessages(t *testing.T) {
	o := offer{1, 65535, "verbs"}
	p := place{port: 65535, provider: "tcp", failure: strings.Repeat("x", 300)}
	_, _ = rand.Read(p.tokens[0][:])
	_, _ = rand.Read(p.tokens[1][:])
	var o2 offer
	var p2 place
	o2.unmarshal((*[messageLen]byte)(o.marshal()))
	p2.unmarshal((*[messageLen]byte)(p.marshal()))
	if p.failure = p.failure[:messageLen-1-failureOff]; o2 != o || p2 != p {
		t.Errorf("%+v, %+v", o2, p2)
	}
	if want := "exnetofi\x01\x00\x00\x00\x01\x00\xff\xff"; string(o.marshal()[:16]) != want {
		t.Errorf("begins with %q", o.marshal()[:16])
	}
}

func FuzzMessage(f *testing.F) {
	f.Add((&offer{1, 2, "tcp"}).marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := hearMessage(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrMismatch) {
				t.Error(err)
			}
			return
		}
		var o offer
		var p place
		o.unmarshal(&m)
		p.unmarshal(&m)
		for _, s := range []string{o.provider, p.provider, p.failure} {
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q would be shown", s)
			}
		}
	})
}

func TestRefuse(t *testing.T) {
	for _, tt := range []struct {
		i    info
		good bool
	}{
		{info{1<<16 | 17, "tcp", 117 << 16}, true}, {info{1<<16 | 18, "tcp", 118<<16 | 1}, true},
		{info{1<<16 | 18, "tcp", 118 << 16}, false}, {info{1<<16 | 18, "verbs", 118 << 16}, false},
		{info{2 << 16, "verbs", 200 << 16}, true}, {info{1<<16 | 17, "net", 117 << 16}, false},
		{info{1<<16 | 17, "sockets", 117 << 16}, false}, {info{1<<16 | 17, "UDP;ofi_rxd", 117 << 16}, false},
	} {
		if err := tt.i.refusal(); (err == nil) != tt.good || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%v: %v", tt.i, err)
		}
	}
}

// Who finds the port and has not the token gets no connection, and does not keep the peer
// from it: noise, silence, hanging up, a helper with another token.
func TestStranger(t *testing.T) {
	path, err := Build(t.Context())
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Provider: "tcp", Helper: path, Timeout: time.Minute}
	helper := func(listens bool) *Engine {
		e, err := startEngine(cfg, listens, netip.MustParseAddr("127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	l := helper(true)
	var at place
	_, _ = rand.Read(at.tokens[0][:])
	_, _ = rand.Read(at.tokens[1][:])
	port, err := l.listen(&at)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range [][]byte{nil, {0}, bytes.Repeat([]byte{0xa5}, 4096), make([]byte, 1<<16)} {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(said)
		if len(said) == 1 {
			t.Cleanup(func() { c.Close() }) // it stays, and is silent
			continue
		}
		c.Close()
	}
	connect := func(mine, theirs [tokenLen]byte) error {
		c := helper(false)
		if err := c.process.sendLine("go %d %x %x", port, mine, theirs); err != nil {
			t.Fatal(err)
		}
		_, err := c.process.readLine("up")
		return err
	}
	if err := connect(at.tokens[1], at.tokens[1]); !errors.Is(err, ErrProvider) {
		t.Errorf("with another token: %v", err)
	}
	if err := connect(at.tokens[0], at.tokens[1]); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if _, err := l.process.readLine("up"); err != nil {
		t.Errorf("the listener: %v", err)
	}
	// A listener that is not the one that was meant.
	l = helper(true)
	other := at
	_, _ = rand.Read(other.tokens[1][:])
	if port, err = l.listen(&other); err != nil {
		t.Fatal(err)
	}
	if err := connect(at.tokens[0], at.tokens[1]); !errors.Is(err, ErrProvider) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("another listener: %v", err)
	}
}
