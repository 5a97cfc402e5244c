package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
)

func TestPacketGolden(t *testing.T) {
	p := packet{flags: flagData | flagNack, seq: 0x01020304, ack: 0x0a0b0c0d, limits: limits{0x1122, 0x3344, 0x5566}, message: []byte{kindEndMark, 2, 3}}
	got := appendPacket(nil, p)
	want := "e2" + "03" + "0300" + "04030201" + "0d0c0b0a" + "2211" + "4433" + "6655" + "0000" + hex.EncodeToString(got[crcOff:HeaderLen]) + "ee0203"
	if hex.EncodeToString(got) != want {
		t.Errorf("packet % x, want %s", got, want)
	}
	back, err := parsePacket(got)
	if err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("%+v, %v", back, err)
	}
	if crc := "c16e7662"; hex.EncodeToString(got[crcOff:HeaderLen]) != crc {
		t.Errorf("CRC %x, want %s", got[crcOff:HeaderLen], crc)
	}
}

const kindEndMark = 0xee

// Every flipped bit and every cut of a packet is found.
func TestPacketDamage(t *testing.T) {
	whole := appendPacket(nil, packet{flags: flagData, seq: 7, ack: 9, limits: plenty, message: bytes.Repeat([]byte{0x5a}, 40)})
	for i := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		if _, err := parsePacket(b); !errors.Is(err, ErrPacket) {
			t.Errorf("bit %d: %v", i, err)
		}
	}
	for n := range whole {
		if _, err := parsePacket(whole[:n]); !errors.Is(err, ErrPacket) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, err := parsePacket(make([]byte, MaxPacket+1)); !errors.Is(err, ErrPacket) {
		t.Errorf("too long: %v", err)
	}
	for _, at := range []int{0, zeroOff, zeroOff + 1} { // another version, and what must be zero
		b := bytes.Clone(whole)
		b[at] ^= packetVersion ^ 0xE1
		binary.LittleEndian.PutUint32(b[crcOff:], packetChecksum(b))
		if _, err := parsePacket(b); !errors.Is(err, ErrPacket) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	for _, p := range []packet{{flags: flagData}, {message: []byte{1}}, {flags: 4}} {
		if _, err := parsePacket(appendPacket(nil, p)); !errors.Is(err, ErrPacket) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func messages() []message {
	g := link.Get{From: 3, To: 4, Remote: 0x1122334455667788, Len: 8 << 20, Notify: true}
	p := link.Put{From: 5, To: 6, Remote: 9, Notify: true, Immediate: true}
	return []message{
		{kind: kindOpen, number: 1, from: 2, to: 3},
		{kind: kindOpened, number: 1, id: 0x1234, n: 128},
		{kind: kindVELO, number: 7, word: 0xfedcba9876543210, data: bytes.Repeat([]byte{1}, link.VELOPayload)},
		{kind: kindReturn, number: 7, word: 1 << 40, data: []byte{}},
		{kind: kindDown, number: 7},
		*getMessage(70000, g),
		{kind: kindData, number: 70000, n: 496, data: bytes.Repeat([]byte{2}, 496)},
		{kind: kindGetEnd, number: 70000, status: fabric.StatusProtection},
		*putMessage(8, p, 1),
		{kind: kindPutData, number: 8, data: []byte{9}},
		{kind: kindPutEnd, number: 8, status: fabric.StatusOK},
		{kind: kindProbe},
	}
}

func TestMessages(t *testing.T) {
	for _, m := range messages() {
		b := m.append(nil)
		var back message
		if err := back.parse(b); err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%+v: %+v, %v", m, back, err)
		}
		for n := range b {
			var cut message
			err := cut.parse(b[:n])
			if fixed := messageLens[m.kind]; (err == nil) != (n >= fixed) {
				t.Errorf("kind %d cut at %d of %d, fixed %d: %v", m.kind, n, len(b), fixed, err)
			}
		}
		if err := new(message).parse(append(b, make([]byte, 600)...)); err == nil {
			t.Errorf("kind %d with 600 bytes more is taken", m.kind)
		}
	}
	for _, b := range [][]byte{{0, 0, 0, 0, 0}, {byte(kindEnd), 0, 0, 0, 0}, {byte(kindGetEnd), 0, 0, 0, 0, 99},
		(&message{kind: kindGet, n: 0}).append(nil), (&message{kind: kindPut, n: 8<<20 + 1}).append(nil)} {
		if err := new(message).parse(b); err == nil {
			t.Errorf("% x is taken", b)
		}
	}
	for _, m := range messages() {
		switch m.kind {
		case kindGet:
			if g := m.asGet(); getMessage(m.number, g).word != m.word || !g.Notify || g.Len != 8<<20 {
				t.Errorf("%+v", g)
			}
		case kindPut:
			if p := m.asPut(); !p.Notify || !p.Immediate || p.From != 5 {
				t.Errorf("%+v", p)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil))
		f.Add(appendPacket(nil, packet{flags: flagData, message: m.append(nil)}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsePacket(b); err == nil {
			if !bytes.Equal(appendPacket(nil, p), b) {
				t.Errorf("% x decodes to %+v", b, p)
			}
		}
		var m message
		if m.parse(b) == nil {
			var again message
			if err := again.parse(m.append(nil)); err != nil || again.kind != m.kind || again.number != m.number || again.word != m.word || !bytes.Equal(again.data, m.data) {
				t.Errorf("%+v becomes %+v, %v", m, again, err)
			}
		}
	})
}

// What ParseFaults takes is within bounds, and is what String writes.
func FuzzParseFaults(f *testing.F) {
	for _, s := range []string{
		"", "drop=0.01,corrupt=0.001,delay=1ms,seed=7", "duplicate=1, reorder=0.5 ,jitter=1m", "drop=NaN", "drop=-1", "drop=1e400", "drop=0x1p-3",
		"delay=2562047h,jitter=2562047h", "delay=-1s", "seed=18446744073709551615", "drop=0,drop=0", "drop", "=", "delay=1", "wrong=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseFaults(s)
		if err != nil {
			if !errors.Is(err, ErrFaults) || got != (Faults{}) {
				t.Fatalf("%q: %+v, %v", s, got, err)
			}
			return
		}
		for _, p := range []float64{got.Drop, got.Corrupt, got.Duplicate, got.Reorder} {
			if !(p >= 0 && p <= 1) {
				t.Fatalf("%q: %+v", s, got)
			}
		}
		if got.Delay < 0 || got.Jitter < 0 || got.Delay > time.Minute || got.Jitter > time.Minute {
			t.Fatalf("%q: %+v", s, got)
		}
		text := got.String()
		if text == "" { // no faults but, maybe, a seed
			return
		}
		if again, err := ParseFaults(text); err != nil || again.String() != text {
			t.Fatalf("%q became %q, and that %+v, %v", s, text, again, err)
		}
	})
}
