package ports

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/packet"
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/ports/wire"
)

// reach answers OpReach: the process passes the node a descriptor of its own /proc/self/mem. The
// process opens it, so that the node needs no right over the process. The descriptor refers to
// this memory for good, whatever the process executes later and whichever process gets its
// number.
func (s *Server) reach(p *port, m wire.Message, fds packet.Descriptors) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusDenied}
	if len(fds) > 0 && p.unit == fabric.UnitRMA && p.own < 0 && isProcess(fds[0], p.pid) {
		p.own = fds.Take(0)
		reply.Status = wire.StatusOK
	}
	return p.post(reply)
}

// isProcess returns whether a descriptor refers to the memory of the process pid, as this node
// sees it. A write to any other file could block, or do what only its opener may.
func isProcess(fd int, pid int32) bool {
	var fs unix.Statfs_t
	var is, want unix.Stat_t
	if pid == 0 || unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	// The file system's entry stays the same while it is open.
	if unix.Fstat(fd, &is) != nil || unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &want) != nil {
		return false
	}
	return is.Dev == want.Dev && is.Ino == want.Ino
}

// transfer answers OpTransfer: A is an address of the peer, B the number of bytes, C 1 for a
// write. The bytes pass through the window of the port's memory.
func (s *Server) transfer(p *port, m wire.Message) error {
	s.mu.Lock()
	who := p.rights
	if p.asking || p.unit != fabric.UnitRMA {
		s.mu.Unlock()
		return fmt.Errorf("%w: operation %d before the last one was answered, or of VELO", wire.ErrMessage, m.Op)
	}
	if m.Addr.Node != s.cfg.Node {
		s.mu.Unlock()
		return s.transferPeer(p, m, who)
	}
	t, why := s.borrowLocked(m, who, p.memory)
	p.asking = t != nil
	s.mu.Unlock()
	reply := wire.Message{Op: m.Op, Number: m.Number, Addr: m.Addr, Status: why}
	if t == nil {
		return p.post(reply)
	}
	// The owner of the memory decides how long the transfer takes.
	go func() {
		reply.Status = t.run(m)
		s.mu.Lock()
		p.asking = false
		s.mu.Unlock()
		_ = p.post(reply) // it has ended
	}()
	return nil
}

// transferPeer does transfer with a port of another node, which gets the port's memory for it.
func (s *Server) transferPeer(p *port, m wire.Message, who rights) error {
	ask := m
	ask.Op, ask.D = wire.OpPeerTransfer, uint64(who.uid)|uint64(who.protect)<<32
	begin := func(to *peer) wire.Status {
		if !to.speaksFor(who.uid) {
			return wire.StatusDenied
		}
		return wire.StatusOK
	}
	return s.ask(p, m.Addr.Node, ask, begin, func(a wire.Message, _ packet.Descriptors) {
		_ = p.post(wire.Message{Op: m.Op, Number: m.Number, Addr: m.Addr, Status: a.Status}) // it has ended
	}, p.memory)
}

// transferFor answers OpPeerTransfer: as OpTransfer, with D the user who asks and its protection
// ID. The memory with the window comes with the message.
func (s *Server) transferFor(p *peer, m wire.Message, fds packet.Descriptors) {
	reply := wire.Message{Op: m.Op, Number: m.Number | answered, Addr: m.Addr, Status: wire.StatusDenied}
	who := rights{uint32(m.D), uint16(m.D >> 32)}
	if !p.speaksFor(who.uid) || len(fds) < 1 || !isMemory(fds[0]) {
		p.post(reply)
		return
	}
	s.mu.Lock()
	t, why := s.borrowLocked(m, who, fds[0])
	s.mu.Unlock()
	if reply.Status = why; t == nil {
		p.post(reply)
		return
	}
	go func() {
		reply.Status = t.run(m)
		p.post(reply)
	}()
}

// transfer holds what OpTransfer uses of two ports: descriptors of its own.
type transfer struct {
	fds    packet.Descriptors
	base   uint64 // first address of the port that owns the memory
	window int    // the other port's memory
	table  int
	own    int
}

// borrowLocked returns the transfer with the port that m names, if a port with the rights who may
// reach it.
//
// +checklocks:s.mu
func (s *Server) borrowLocked(m wire.Message, who rights, memory int) (*transfer, wire.Status) {
	to := s.ports[fabric.UnitRMA][m.Addr.VPID]
	switch {
	case to == nil || to.own < 0:
		return nil, wire.StatusNoPort
	case !who.mayReach(to.rights):
		return nil, wire.StatusDenied
	case m.B < 1 || m.B > wire.WindowSize:
		return nil, wire.StatusInvalid
	}
	fds, err := packet.DupAll(memory, to.table, to.own)
	if err != nil {
		return nil, wire.StatusFull
	}
	return &transfer{fds, wire.Base(to.vpid), fds[0], fds[1], fds[2]}, wire.StatusOK
}

// run moves the bytes and closes the descriptors.
func (t *transfer) run(m wire.Message) wire.Status {
	defer t.fds.Close()
	b := make([]byte, m.B)
	put := m.C&1 != 0
	if put && !all(unix.Pread, t.window, b, wire.WindowOff) {
		return wire.StatusInvalid
	}
	places, ok := t.places(m.A, len(b))
	if !ok {
		return wire.StatusInvalid
	}
	for _, p := range places {
		if put {
			ok = putInOrder(t.own, b[p.off:p.end], p.address)
		} else {
			ok = all(unix.Pread, t.own, b[p.off:p.end], p.address)
		}
		if !ok {
			return wire.StatusDenied
		}
	}
	if !put && !all(unix.Pwrite, t.window, b, wire.WindowOff) {
		return wire.StatusInvalid
	}
	return wire.StatusOK
}

// place is the address in the process of bytes off to end of a transfer.
type place struct {
	off, end int
	address  int64
}

// places returns the places of n bytes from the port's address a on. It returns false if some of
// them are not in pages that stay in their program.
func (t *transfer) places(a uint64, n int) (list []place, ok bool) {
	off := a - t.base
	if off >= atu.MaxRegion || uint64(n) > atu.MaxRegion-off {
		return nil, false
	}
	first, in := off/atu.PageSize, int(off%atu.PageSize)
	table := make([]byte, (in+n+atu.PageSize-1)/atu.PageSize*8)
	if !all(unix.Pread, t.table, table, int64(8*first)) {
		return nil, false
	}
	for at := 0; at < n; table = table[8:] {
		address, ok := wire.Entry(binary.LittleEndian.Uint64(table)).Place()
		if !ok {
			return nil, false
		}
		p := place{at, min(n, at+atu.PageSize-in), int64(address) + int64(in)}
		if last := len(list) - 1; last >= 0 && list[last].address+int64(at-list[last].off) == p.address {
			list[last].end = p.end
		} else {
			list = append(list, p)
		}
		at, in = p.end, 0
	}
	return list, true
}

// putInOrder writes an aligned word at the end last: a reader that polls on it and sees it sees
// all the others.
func putInOrder(fd int, b []byte, at int64) bool {
	if n := len(b) - 8; n > 0 && (at+int64(n))%8 == 0 {
		return all(unix.Pwrite, fd, b[:n], at) && all(unix.Pwrite, fd, b[n:], at+int64(n))
	}
	return all(unix.Pwrite, fd, b, at)
}

// all returns whether call moves all of b at once.
func all(call func(int, []byte, int64) (int, error), fd int, b []byte, at int64) bool {
	n, err := call(fd, b, at)
	return err == nil && n == len(b)
}
