package wire

import "net/netip"

// Key finds a connection: the addresses of its ends. A Nonce tells incarnations of
// one Key apart.
type Key struct {
	Client, Server netip.AddrPort // side 0, side 1; IPv4 is not mapped into IPv6
	// Zone is the interface of link-local addresses; 0: none.
	Zone uint32
}

func (k Key) Valid() bool {
	return k.Client.Addr().IsValid() && k.Server.Addr().IsValid() && k.Client.Port() != 0 && k.Server.Port() != 0 &&
		k.Client.Addr().Is4() == k.Server.Addr().Is4()
}

// UDPBucket is the word of the page's offers that datagrams to a port have (SPEC.md, 10.4).
func UDPBucket(port uint16) uint32 {
	return Key{Server: netip.AddrPortFrom(netip.Addr{}, port)}.Bucket()
}

// FNV-1a of 32 bits (Fowler, Noll, Vo).
const (
	fnvBasis = 2166136261
	fnvPrime = 16777619
)

// Bucket is the word of the page's offers that the connection has, 0..4095.
func (k Key) Bucket() uint32 {
	var buf [EndsLen]byte
	h := uint32(fnvBasis)
	for _, c := range AppendEnds(buf[:0], k.Client, k.Server) {
		h = (h ^ uint32(c)) * fnvPrime
	}
	return h % offerWords
}
