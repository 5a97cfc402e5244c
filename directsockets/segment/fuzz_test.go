package segment

import (
	"bytes"
	"net/netip"
	"testing"
)

// A header that is taken describes a segment of that size, and is what put writes.
func FuzzHeader(f *testing.F) {
	for _, c := range []Config{{Slots: 16, Ring: 64 << 10}, {Slots: 4096, Ring: 1 << 30}, {Slots: 128, Ring: 1 << 20}} {
		size, _ := sizeOf(c.Slots, c.Ring)
		h := header{slots: c.Slots, ring: c.Ring, size: size, info: Info{
			Nonce: [16]byte{1, 2, 3}, Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("[fe80::1]:80"),
		}}
		var b [headLen]byte
		h.encode(&b)
		f.Add(b[:], size)
		f.Add(b[:], size-4096)
		for _, at := range []int{headMagicOff, headVersionOff, headSlotsOff, headRingOff, headRingOff + 7, headSizeOff + 3, headDeviceOff} {
			bad := bytes.Clone(b[:])
			bad[at] ^= 1 << (at % 8)
			f.Add(bad, size)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		var b, again [headLen]byte
		copy(b[:], text)
		before := header{slots: 1}
		h := before
		if h.decode(&b, size) != nil {
			if h != before {
				t.Fatal("changed by what was refused")
			}
			return
		}
		want, rings := sizeOf(h.slots, h.ring)
		if want != size || h.size != size || rings+2*h.ring != size || rings < queuesOff+2*h.slots*128 {
			t.Fatalf("%+v in %d bytes", h, size)
		}
		if (Config{Slots: h.slots, Ring: h.ring}).check() != nil || 1<<log2(h.slots) != h.slots {
			t.Fatalf("%+v", h)
		}
		h.encode(&again)
		if again != b {
			t.Fatalf("% x\nbecame\n% x", b, again)
		}
	})
}
