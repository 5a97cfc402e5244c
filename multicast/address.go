package multicast

import (
	"encoding/binary"
	"net/netip"
)

// key is an IP address as a map key that hashes fast; IPv4 as ::ffff:a.b.c.d.
type key struct{ hi, lo uint64 }

const mappedPrefix = 0xffff << 32

// keyOf returns the key of an address of 4 or 16 bytes.
func keyOf(b []byte) (key, bool) {
	switch len(b) {
	case 4:
		return key{lo: mappedPrefix | uint64(binary.BigEndian.Uint32(b))}, true
	case 16:
		return key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
	}
	return key{}, false
}

func keyOfAddr(a netip.Addr) key {
	b := a.As16()
	k, _ := keyOf(b[:])
	return k
}

func (k key) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b).Unmap()
}

// Values of the two halves of a key, and masks for them.
const (
	localControlMask = 0xffffff00
	localControl     = mappedPrefix | 0xe0000000 // 224.0.0.0/24
	linkLocalScope   = 0xff02 << 48              // ff02::/64
	solicitedMask    = 0xffff_ffff_ff00_0000
	solicitedNode    = 0x0000_0001_ff00_0000 // ff02::1:ff00:0/104
)

// everybody reports whether a group is one that frames reach everybody by.
func (k key) everybody() bool {
	switch k.hi {
	case 0:
		return k.lo&(mappedPrefix|localControlMask) == localControl
	case linkLocalScope:
		return k.lo < 0x100 || k.lo&solicitedMask == solicitedNode
	}
	return false
}

// Everybody reports whether a multicast group is one that every node is in,
// whatever is reported: see the package documentation.
func Everybody(group netip.Addr) bool { return keyOfAddr(group).everybody() }
