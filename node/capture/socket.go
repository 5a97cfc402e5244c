package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"exnet/exn"
	"exnet/exteth"
	"exnet/foreign"
)

// Socket gets the TCP segments and the UDP datagrams that pass the interfaces of a network
// namespace (packet(7)). A packet on the loopback comes once.
//
// Concurrency: Read is for one goroutine; Close ends it.
type Socket struct {
	file *os.File
	raw  syscall.RawConn
	buf  []byte
	oob  []byte
	lost uint32 // what the kernel had no room for before the packet that was read last
}

// socketQueue is how many bytes of packets may wait in the kernel.
const socketQueue = 32 << 20

// maxPacket is the longest packet that is read whole. (BIG TCP makes longer ones.)
const maxPacket = 512 << 10

// loopback is the index of lo in every network namespace.
const loopback = 1

// maxHeaders is enough of a packet to find its ports: an IPv4 header with all options, and these.
const maxHeaders = 64

// OpenSocket opens a Socket in the calling thread's namespace; port 0: for all ports. It copies no
// more than snapLen bytes of a packet, but its headers; 0: all.
func OpenSocket(port uint16, snapLen int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, errors.New("capture: only root may see packets of a network namespace")
	}
	if err != nil {
		return nil, fmt.Errorf("capture: packet socket: %w", err)
	}
	s := &Socket{file: os.NewFile(uintptr(fd), "packet socket"), buf: make([]byte, maxPacket), oob: make([]byte, 256)}
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = setUp(fd, port, snapLen)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture: packet socket: %w", err), s.Close())
	}
	return s, nil
}

// setUp binds a packet socket: before, it gets nothing.
func setUp(fd int, port uint16, snapLen int) error {
	accept := uint32(math.MaxUint32)
	if snapLen > 0 {
		accept = uint32(max(snapLen, maxHeaders))
	}
	all := uint16(unix.ETH_P_ALL)
	return errors.Join(
		attachFilter(fd, portFilter(uint32(port), accept)),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketQueue),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8}),
	)
}

// attachFilter has a socket take what a program lets pass.
func attachFilter(fd int, p []bpf.Instruction) error {
	program, err := bpf.Assemble(p)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(program))
	for i, in := range program {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}

// Offsets of the headers that a Socket looks at.
const (
	ipv4FragmentOff = 6
	ipv4ProtocolOff = 9
	ipv4SourceOff   = 12
	ipv4Len         = 20
	ipv6NextOff     = 6
	ipv6SourceOff   = 8
	ipv6Len         = 40
	tcpChecksumOff  = 16
	udpChecksumOff  = 6
)

// reject is what a filter says of a packet that it does not want.
const reject = 0

// portFilter takes accept bytes of the TCP segments and the UDP datagrams from or to a port (0:
// all), but not those that are sent to lo: they come back as received ones.
func portFilter(port, accept uint32) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loopback, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: reject},
	}
	// ports of a header that begins at register X.
	ports := []bpf.Instruction{bpf.RetConstant{Val: accept}}
	if port != 0 {
		ports = []bpf.Instruction{
			bpf.LoadIndirect{Off: 0, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: port, SkipTrue: 2},
			bpf.LoadIndirect{Off: 2, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: port, SkipTrue: 1},
			bpf.RetConstant{Val: accept},
			bpf.RetConstant{Val: reject},
		}
	}
	transport := func(off uint32, header bpf.Instruction) []bpf.Instruction {
		return append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: off, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
			bpf.RetConstant{Val: reject},
			header,
		}, ports...)
	}
	v4 := transport(ipv4ProtocolOff, bpf.LoadMemShift{Off: 0})
	p = append(p,
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: uint8(len(v4))})
	p = append(p, v4...)
	p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 1}, bpf.RetConstant{Val: reject})
	return append(p, transport(ipv6NextOff, bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Len})...)
}

// Seen is a packet that a Socket has read.
type Seen struct {
	Packet
	Link     int // index of the interface
	UDP      bool
	From, To netip.AddrPort
	// Lost is how many packets the kernel had no room for between the one that was read before and
	// this one.
	Lost uint32
}

// Read waits for a packet, which is valid until the next call. io.EOF: after End, nothing is left.
func (s *Socket) Read() (Seen, error) {
	for {
		var n, oobn int
		var from unix.Sockaddr
		var err error
		receive := func(fd uintptr) bool {
			n, oobn, _, from, err = unix.Recvmsg(int(fd), s.buf, s.oob, 0)
			return err != unix.EAGAIN
		}
		waitErr := s.raw.Read(receive)
		if errors.Is(waitErr, os.ErrDeadlineExceeded) {
			waitErr = s.raw.Control(func(fd uintptr) { receive(fd) })
		}
		if waitErr != nil {
			return Seen{}, waitErr
		}
		if err == unix.EAGAIN {
			return Seen{}, io.EOF
		}
		if err == unix.EINTR || err == unix.ENETDOWN { // an interface has gone
			continue
		}
		if err != nil {
			return Seen{}, fmt.Errorf("capture: packet socket: %w", err)
		}
		p := Seen{Packet: Packet{At: time.Now(), Direction: exn.RX, Length: n, Data: foreign.Private(s.buf[:n])}}
		lost, unfinished := p.readControl(s.oob[:oobn], s.lost)
		at, csum, ok := p.parseEnds(s.buf[:n])
		if !ok {
			continue
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok {
			p.Link = link.Ifindex
			if link.Pkttype == unix.PACKET_OUTGOING {
				p.Direction = exn.TX
			}
		}
		if unfinished && p.Length == n { // a checksum needs the whole packet
			p.Offload = exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: at, CsumOffset: csum}
		}
		p.Lost, s.lost = lost-s.lost, lost
		return p, nil
	}
}

// readControl reads when a packet was seen, how long it was, and whether its checksum is not
// computed yet. lost is how many the Socket has lost until then: was, if the kernel does not say.
func (p *Seen) readControl(oob []byte, was uint32) (lost uint32, unfinished bool) {
	lost = was
	for len(oob) > 0 {
		h, data, next, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS && len(data) >= 16:
			p.At = time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			lost = binary.NativeEndian.Uint32(data)
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= 8:
			unfinished = binary.NativeEndian.Uint32(data)&unix.TP_STATUS_CSUMNOTREADY != 0
			p.Length = int(binary.NativeEndian.Uint32(data[4:]))
		}
		oob = next
	}
	return lost, unfinished
}

// parseEnds finds the ends. It returns where the transport header is, and where the checksum is
// in it. false: it is none, or not the first fragment.
func (p *Seen) parseEnds(b []byte) (at, csum uint16, ok bool) {
	var protocol byte
	var from, to netip.Addr
	switch {
	case len(b) >= ipv4Len && b[0]>>4 == 4:
		if binary.BigEndian.Uint16(b[ipv4FragmentOff:])&0x1fff != 0 {
			return 0, 0, false
		}
		at, protocol = uint16(b[0]&0xf)*4, b[ipv4ProtocolOff]
		from, to = netip.AddrFrom4([4]byte(b[ipv4SourceOff:])), netip.AddrFrom4([4]byte(b[ipv4SourceOff+4:]))
	case len(b) >= ipv6Len && b[0]>>4 == 6:
		at, protocol = ipv6Len, b[ipv6NextOff]
		from, to = netip.AddrFrom16([16]byte(b[ipv6SourceOff:])), netip.AddrFrom16([16]byte(b[ipv6SourceOff+16:]))
	}
	p.UDP, csum = protocol == unix.IPPROTO_UDP, tcpChecksumOff
	if p.UDP {
		csum = udpChecksumOff
	}
	if protocol != unix.IPPROTO_TCP && !p.UDP || len(b) < int(at)+4 {
		return 0, 0, false
	}
	p.From = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[at:]))
	p.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[at+2:]))
	return at, csum, true
}

// End has no more packets come. Read still returns those that wait.
func (s *Socket) End() error {
	var err error
	closed := s.raw.Control(func(fd uintptr) { err = attachFilter(int(fd), []bpf.Instruction{bpf.RetConstant{Val: reject}}) })
	return errors.Join(closed, err, s.file.SetReadDeadline(time.Unix(1, 0)))
}

// Dropped returns how many packets the kernel had no room for since the one that was read last.
// It is for one call, after Read's last one.
func (s *Socket) Dropped() (n uint32) {
	_ = s.raw.Control(func(fd uintptr) { // it fails only of what is closed
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = stats.Drops - s.lost
		}
	})
	return n
}

// Close ends it.
func (s *Socket) Close() error { return s.file.Close() }
