package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
)

// proof identifies the socket that an O_PATH descriptor stands for. Whoever opened the descriptor
// had the socket. The descriptor does not keep the socket open: it closes when its program closes
// it, whatever is on its way to the broker.
type proof struct {
	inode, uid uint32
}

// proofOf returns what fd stands for. dev is the device of the kernel's file system
// of sockets.
func proofOf(fd int, dev uint64) (proof, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return proof{}, fmt.Errorf("%w: %v", errSocket, err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH == 0 || st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Dev != dev {
		return proof{}, fmt.Errorf("%w: not an O_PATH descriptor of a socket", errSocket)
	}
	return proof{inode: uint32(st.Ino), uid: st.Uid}, nil
}

// diag finds the TCP sockets of a namespace (sock_diag(7)). Inode numbers are of 32
// bits and wrap, so the owner has to match, too.
//
// Concurrency: all methods may be called from many goroutines.
type diag struct {
	dev uint64 // of the file system of sockets

	mu  sync.Mutex
	fd  int    // belongs to mu; a netlink socket of the namespace; -1: closed
	seq uint32 // belongs to mu
	buf []byte // belongs to mu
}

// openDiag opens it for the calling thread's namespace.
func openDiag() (*diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("broker: netlink: %w", err)
	}
	// The kernel answers while it is asked: this is for the case that it does not.
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("broker: netlink: %w", err)
	}
	d := &diag{fd: fd, dev: st.Dev, buf: make([]byte, 32<<10)}
	none := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if _, err := d.sendRequest(wire.DiagRequest(unix.IPPROTO_TCP, none, none, 0, 0), unix.NLM_F_DUMP, func([]byte) {}); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// errNoDiag says that the kernel lists no sockets of the protocol.
var errNoDiag = errors.New("broker: the kernel lacks the modules inet_diag and tcp_diag, by which the sockets of programs are checked")

func (d *diag) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

// Layout of struct inet_diag_req_v2 and of struct inet_diag_msg (linux/inet_diag.h),
// from their beginning. Ports and addresses are in network byte order.
const (
	reqExtOff    = 2 // uint8: bit n - 1: with attribute n
	reqIDOff     = 8 // struct inet_diag_sockid
	msgFamilyOff = 0 // uint8
	msgStateOff  = 1 // uint8
	msgIDOff     = 4
	msgUIDOff    = 64 // uint32
	msgInodeOff  = 68 // uint32
	msgLen       = 72 // then attributes

	idSportOff  = 0 // uint16
	idDportOff  = 2 // uint16
	idSrcOff    = 4 // 16 bytes
	idDstOff    = 20
	idIfOff     = 36 // uint32
	idCookieOff = 40 // 8 bytes; all ones: any

	diagInfo     = 2  // attribute INET_DIAG_INFO: struct tcp_info
	diagSKV6Only = 11 // attribute INET_DIAG_SKV6ONLY

	sockDestroy = 21 // type of a message: SOCK_DESTROY

	// Of struct tcp_info (linux/tcp.h).
	tcpiBytesAcked    = 120 // uint64
	tcpiBytesReceived = 128 // uint64
	tcpiSegsIn        = 140 // uint32
)

// The kernel's TCP states in which a connection has a peer, and that of listeners.
const (
	tcpEstablished = 1
	tcpListen      = 10
	// tcpSynRecv: the handshake's last packet has not come, or data is awaited with it
	// (TCP_DEFER_ACCEPT). The socket that it becomes has the same cookie.
	tcpSynRecv = 1 << 3
	tcpStates  = 1<<1 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11 // ESTABLISHED FIN_WAIT1 FIN_WAIT2 CLOSE_WAIT LAST_ACK CLOSING
)

// shadow is a connected socket as the kernel knows it.
type shadow struct {
	zone uint32 // of its link-local addresses
	// cookie is its number (SO_COOKIE), which no other socket of this host ever has. ifindex is the
	// interface that it is bound to; 0: none.
	cookie  uint64
	ifindex uint32
}

// findConnected checks that p is the connection from local to remote, bound to an interface
// (0: none), and returns what the kernel knows of it.
func (d *diag) findConnected(p proof, local, remote netip.AddrPort, ifindex uint32) (of shadow, err error) {
	if !local.IsValid() || !remote.IsValid() || local.Addr().Is4() != remote.Addr().Is4() {
		return of, fmt.Errorf("%w: addresses of different families", errSocket)
	}
	found := false
	_, err = d.sendRequest(wire.DiagRequest(unix.IPPROTO_TCP, local, remote, ifindex, tcpStates), 0, func(m []byte) {
		if 1<<m[msgStateOff]&tcpStates == 0 || !p.isOf(m) {
			return
		}
		found = diagEnd(m, idSrcOff, idSportOff) == local && diagEnd(m, idDstOff, idDportOff) == remote
		of = shadow{binary.NativeEndian.Uint32(m[msgIDOff+idIfOff:]), cookieOf(m), ifindex}
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: the socket is another connection", errSocket)
	}
	if !local.Addr().IsLinkLocalUnicast() && !remote.Addr().IsLinkLocalUnicast() {
		of.zone = 0
	}
	return of, err
}

// isStanding says whether the socket with these ends is still the same one: a later connection
// may have the same ends.
func (d *diag) isStanding(of shadow, local, remote netip.AddrPort) (same bool, err error) {
	_, same, err = d.stateOf(of, local, remote)
	return same, err
}

// stateOf returns the state of the socket with these ends, and whether it is still the same one.
func (d *diag) stateOf(of shadow, local, remote netip.AddrPort) (state uint8, same bool, err error) {
	_, err = d.sendRequest(wire.DiagRequest(unix.IPPROTO_TCP, local, remote, of.ifindex, tcpStates), 0, func(m []byte) {
		state = m[msgStateOff]
		same = 1<<state&tcpStates != 0 && cookieOf(m) == of.cookie
	})
	return state, same, err
}

// socketAt returns the socket with these ends, local being this node's, whoever owns it. A
// socket that the program has not accepted yet has no inode. found false: there is none.
func (d *diag) socketAt(local, remote netip.AddrPort, ifindex uint32) (of shadow, found bool, err error) {
	_, err = d.sendRequest(wire.DiagRequest(unix.IPPROTO_TCP, local, remote, ifindex, tcpStates), 0, func(m []byte) {
		if 1<<m[msgStateOff]&(tcpStates|tcpSynRecv) == 0 {
			return
		}
		found = true
		of = shadow{cookie: cookieOf(m), ifindex: ifindex}
	})
	return of, found, err
}

// life is what the kernel knows of a connection that stands.
type life struct {
	established bool
	// acked and received count bytes, segments the packets received.
	acked, received uint64
	segments        uint32
}

// lifeOf returns what the kernel knows of the socket with these ends; false: it is another one,
// or none.
func (d *diag) lifeOf(of shadow, local, remote netip.AddrPort) (l life, same bool, err error) {
	req := wire.DiagRequest(unix.IPPROTO_TCP, local, remote, of.ifindex, tcpStates)
	req[unix.SizeofNlMsghdr+reqExtOff] = 1 << (diagInfo - 1)
	_, err = d.sendRequest(req, 0, func(m []byte) {
		if 1<<m[msgStateOff]&tcpStates == 0 || cookieOf(m) != of.cookie {
			return
		}
		info := attributeOf(m[msgLen:], diagInfo)
		if same = len(info) >= tcpiSegsIn+4; same {
			l = life{established: m[msgStateOff] == tcpEstablished, acked: binary.NativeEndian.Uint64(info[tcpiBytesAcked:]),
				received: binary.NativeEndian.Uint64(info[tcpiBytesReceived:]), segments: binary.NativeEndian.Uint32(info[tcpiSegsIn:])}
		}
	})
	return l, same, err
}

// destroySocket has the kernel end a socket, as ss -K does.
func (d *diag) destroySocket(of shadow, local, remote netip.AddrPort) error {
	req := wire.DiagRequest(unix.IPPROTO_TCP, local, remote, of.ifindex, tcpStates)
	binary.NativeEndian.PutUint16(req[nlTypeOff:], sockDestroy)
	binary.NativeEndian.PutUint64(req[unix.SizeofNlMsghdr+reqIDOff+idCookieOff:], of.cookie)
	_, err := d.sendRequest(req, unix.NLM_F_ACK, func([]byte) {})
	return err
}

func cookieOf(m []byte) uint64 { return binary.NativeEndian.Uint64(m[msgIDOff+idCookieOff:]) }

// findListening checks that p is a listener at a port. It returns where it listens, and how much
// processor time the check took: the kernel goes through all listeners of the port.
func (d *diag) findListening(p proof, port uint16) (b bound, spent time.Duration, err error) {
	if port == 0 {
		return bound{}, 0, fmt.Errorf("%w: the socket has no address", errSocket)
	}
	found := false
	for _, any := range []netip.Addr{netip.IPv6Unspecified(), netip.IPv4Unspecified()} {
		took, err := d.sendRequest(wire.DiagRequest(unix.IPPROTO_TCP, netip.AddrPortFrom(any, port), netip.AddrPortFrom(any, 0), 0, 1<<tcpListen), unix.NLM_F_DUMP, func(m []byte) {
			if m[msgStateOff] != tcpListen || !p.isOf(m) {
				return
			}
			if at := diagEnd(m, idSrcOff, idSportOff); at.Port() == port {
				found = true
				b = bound{addr: at.Addr(), port: port, v6only: m[msgFamilyOff] == unix.AF_INET6 && flagOf(m[msgLen:], diagSKV6Only)}
			}
		})
		spent += took
		if err != nil {
			return bound{}, spent, err
		}
		if found {
			return b, spent, nil
		}
	}
	return bound{}, spent, fmt.Errorf("%w: the socket does not listen at port %d", errSocket, port)
}

// isOf reports whether a struct inet_diag_msg is of the socket.
func (p proof) isOf(m []byte) bool {
	return p.inode != 0 && binary.NativeEndian.Uint32(m[msgInodeOff:]) == p.inode && binary.NativeEndian.Uint32(m[msgUIDOff:]) == p.uid
}

// diagEnd is one end in a struct inet_diag_msg.
func diagEnd(m []byte, addrOff, portOff int) netip.AddrPort {
	id := m[msgIDOff:]
	a := netip.AddrFrom4([4]byte(id[addrOff:]))
	if m[msgFamilyOff] == unix.AF_INET6 {
		a = netip.AddrFrom16([16]byte(id[addrOff:])).Unmap()
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(id[portOff:]))
}

// flagOf is the value of an attribute of one byte.
func flagOf(attrs []byte, typ uint16) bool {
	b := attributeOf(attrs, typ)
	return len(b) > 0 && b[0] != 0
}

// attributeOf returns the payload of the attribute of a type; nil: attrs has none.
func attributeOf(attrs []byte, typ uint16) []byte {
	for len(attrs) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(attrs))
		if n < unix.SizeofRtAttr || n > len(attrs) {
			return nil
		}
		if binary.NativeEndian.Uint16(attrs[2:]) == typ {
			return attrs[unix.SizeofRtAttr:n]
		}
		attrs = attrs[min((n+3)&^3, len(attrs)):]
	}
	return nil
}

// sendRequest sends a request with flags, and calls found with each struct inet_diag_msg of the
// answer; found must not keep it. A missing socket is no error. spent is the processor time of a
// dump.
func (d *diag) sendRequest(req []byte, flags uint16, found func(m []byte)) (spent time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ask := func() {
		if err = d.askLocked(req, flags, found); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EBUSY) {
			err = d.askLocked(req, flags, found) // what was in the way is gone
		}
	}
	if flags&unix.NLM_F_DUMP == 0 {
		ask()
		return 0, err
	}
	spent = measureTime(ask)
	return spent, err
}

// +checklocks:d.mu
func (d *diag) askLocked(req []byte, flags uint16, found func(m []byte)) error {
	if d.fd < 0 {
		return wire.ErrClosed
	}
	d.seq++
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(req[nlSeqOff:], d.seq)
	if err := unix.Sendto(d.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("broker: sock_diag: %w", err)
	}
	for {
		n, _, err := unix.Recvfrom(d.fd, d.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			d.drainLocked()
			return fmt.Errorf("broker: sock_diag: %w", err)
		}
		done, err := d.parseAnswer(d.buf[:n], flags&unix.NLM_F_DUMP != 0, found)
		if err != nil {
			d.drainLocked()
		}
		if done || err != nil {
			return err
		}
	}
}

// drainLocked reads the rest of an answer that was given up: the kernel begins no dump before the
// last one has been read.
//
// +checklocks:d.mu
func (d *diag) drainLocked() {
	for err := error(nil); err == nil || err == unix.EINTR; {
		_, _, err = unix.Recvfrom(d.fd, d.buf, unix.MSG_DONTWAIT)
	}
}

// parseAnswer reads one datagram of an answer; done: it was the last.
func (d *diag) parseAnswer(b []byte, dump bool, found func(m []byte)) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return true, errors.New("broker: sock_diag: message cut short")
		}
		body := b[unix.SizeofNlMsghdr:n]
		if binary.NativeEndian.Uint32(b[nlSeqOff:]) == d.seq { // else the answer to one that was given up
			switch typ := binary.NativeEndian.Uint16(b[nlTypeOff:]); {
			case (typ == unix.NLMSG_DONE || typ == unix.NLMSG_ERROR) && len(body) >= 4:
				errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
				if errno == unix.ENOENT && dump {
					return true, errNoDiag
				}
				if errno == 0 || errno == unix.ENOENT {
					return true, nil
				}
				return true, fmt.Errorf("broker: sock_diag: %w", errno)
			case typ == unix.SOCK_DIAG_BY_FAMILY && len(body) >= msgLen:
				found(body)
				done = !dump
			}
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return done, nil
}
