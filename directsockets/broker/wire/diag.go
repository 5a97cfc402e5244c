package wire

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Layout of struct inet_diag_req_v2 (linux/inet_diag.h). Ports and addresses are in network byte
// order.
const (
	diagFamilyOff   = 0 // uint8
	diagProtocolOff = 1 // uint8
	diagStatesOff   = 4 // uint32
	diagIDOff       = 8 // struct inet_diag_sockid: ports, addresses of 16 bytes, interface, cookie
	diagLen         = 56
)

// DiagRequest is what a broker and its clients ask the kernel (sock_diag(7)): the socket with these
// ends, whatever its cookie, or, as a dump, all sockets of the family at the local port.
func DiagRequest(protocol uint8, local, remote netip.AddrPort, ifindex, states uint32) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+diagLen)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.SizeofNlMsghdr:]
	r[diagFamilyOff], r[diagProtocolOff] = unix.AF_INET, protocol
	if local.Addr().Is6() {
		r[diagFamilyOff] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(r[diagStatesOff:], states)
	id := r[diagIDOff:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:], local.Addr().AsSlice())
	copy(id[20:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint32(id[36:], ifindex)
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0))
	return b
}
