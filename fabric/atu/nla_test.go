package atu

import "testing"

func TestNLAGolden(t *testing.T) {
	const a = NLA(0)<<63 |
		NLA(0xABCDEF)<<40 | // generation 24
		NLA(0x2AA)<<30 | // GAT 10
		NLA(0x31234)<<12 | // page 18
		NLA(0x5A5) // offset 12
	if uint64(a) != 0xABCDEF_AAB1_2345_A5 {
		t.Errorf("address is %#x", uint64(a))
	}
	if a.Generation() != 0xABCDEF || a.GAT() != 0x2AA || a.Page() != 0x31234 || a.Offset() != 0x5A5 {
		t.Errorf("fields %#x %#x %#x %#x", a.Generation(), a.GAT(), a.Page(), a.Offset())
	}
	if got, want := a.String(), "2aa:31234+5a5@abcdef"; got != want {
		t.Errorf("String %q, want %q", got, want)
	}
	if got := makeNLA(0x2AA, 0x31234); got != a&addrMask&^0xFFF {
		t.Errorf("makeNLA %v", got)
	}
}

// Every region's addresses stay below the generation.
func TestNLALimits(t *testing.T) {
	last := makeNLA(GATs-1, PagesPerGAT-1) + PageSize - 1
	if last != addrMask {
		t.Errorf("last address %#x, mask %#x", uint64(last), uint64(addrMask))
	}
	if MaxRegion != 1<<30 {
		t.Errorf("a GAT maps %d bytes", MaxRegion)
	}
}
