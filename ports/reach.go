package ports

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach/wire"
	"exnet/foreign"
	"exnet/internal/shm"
	"exnet/node/rpc"
)

// answerReach answers OpReach: the process passes the node a descriptor of its own
// /proc/self/mem. The process opens it, so that the node needs no right over the process. The
// descriptor refers to this memory for good, whatever the process executes later and whichever
// process gets its number.
func (s *Server) answerReach(p *port, m wire.Message, fds rpc.Descriptors) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusDenied}
	if len(fds) > 0 && p.unit == fabric.UnitRMA && p.memFD < 0 && isProcess(fds[0], p.pid) {
		p.memFD = fds.Take(0)
		reply.Status = wire.StatusOK
	}
	return p.sendToProcess(reply)
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
	reply := wire.Message{Op: m.Op, Number: m.Number, Addr: m.Addr}
	p.asking = true
	why := s.borrowLocked(p, m, who, func(why wire.Status) {
		s.mu.Lock()
		p.asking = false
		s.mu.Unlock()
		_ = p.sendToProcess(withStatus(reply, why)) // it has ended
	})
	p.asking = why == wire.StatusOK
	s.mu.Unlock()
	if why != wire.StatusOK {
		return p.sendToProcess(withStatus(reply, why))
	}
	return nil
}

// withStatus returns a message with a status.
func withStatus(m wire.Message, why wire.Status) wire.Message {
	m.Status = why
	return m
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
	return s.askNode(p, m.Addr.Node, ask, begin, func(a wire.Message, _ rpc.Descriptors) {
		_ = p.sendToProcess(wire.Message{Op: m.Op, Number: m.Number, Addr: m.Addr, Status: a.Status}) // it has ended
	}, p.memory)
}

// transferFor answers OpPeerTransfer: as OpTransfer, with D the user who asks and its protection
// ID. The memory with the window comes with the message.
func (s *Server) transferFor(p *peer, m wire.Message, fds rpc.Descriptors) {
	reply := wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Addr: m.Addr, Status: wire.StatusDenied}
	who := rights{uint32(m.D), uint16(m.D >> 32)}
	if !p.speaksFor(who.uid) || len(fds) < 1 || !isMemory(fds[0]) {
		p.send(reply)
		return
	}
	memory, err := shm.MapShared(fds[0], wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		p.send(reply)
		return
	}
	s.mu.Lock()
	why := s.startLocked(m, who, memory, func(why wire.Status) {
		memory.Retire()
		p.send(withStatus(reply, why))
	})
	s.mu.Unlock()
	if why != wire.StatusOK {
		memory.Retire()
		p.send(withStatus(reply, why))
	}
}

// transfer is a copy between pages in their place and the window of another port. What it uses of
// their owner are descriptors of its own.
type transfer struct {
	m     wire.Message
	fds   rpc.Descriptors
	base  uint64 // first address of the port that owns the memory
	table int
	memFD int
	end   func(wire.Status)
	timer *time.Timer

	mu sync.Mutex
	// window: of the other port. It is mapped: a write(2) to the file would wait for that of
	// another process, which can make it last for ever. nil: the transfer was answered, and the
	// window may be in use for the next one.
	window *shm.Foreign // +checklocks:mu
}

// borrowLocked begins a transfer between the window of p and the port that m names, if a port with
// the rights who may reach that. end is called with the outcome, unless it returns another status
// than StatusOK.
//
// +checklocks:s.mu
func (s *Server) borrowLocked(p *port, m wire.Message, who rights, end func(wire.Status)) wire.Status {
	if p.view() != nil {
		return wire.StatusFull
	}
	return s.startLocked(m, who, p.mapped.memory, end)
}

// startLocked is borrowLocked with the memory of any port.
//
// +checklocks:s.mu
func (s *Server) startLocked(m wire.Message, who rights, window *shm.Foreign, end func(wire.Status)) wire.Status {
	to := s.ports[fabric.UnitRMA][m.Addr.VPID]
	switch {
	case to == nil || to.memFD < 0:
		return wire.StatusNoPort
	case !who.mayReach(to.rights):
		return wire.StatusDenied
	case m.B < 1 || m.B > wire.WindowSize:
		return wire.StatusInvalid
	}
	fds, err := rpc.DupAll(to.table, to.memFD)
	if err != nil {
		return wire.StatusFull
	}
	t := &transfer{m: m, fds: fds, base: wire.Base(to.vpid), table: fds[0], memFD: fds[1], end: end, window: window}
	t.timer = time.AfterFunc(time.Hour, func() { t.answerOnce(wire.StatusDenied) })
	if !s.copyLocked(to.account, t.moveBytes) {
		t.timer.Stop()
		fds.Close()
		return wire.StatusFull
	}
	t.timer.Reset(s.copyTime)
	return wire.StatusOK
}

// answerOnce ends a transfer for who asks, once.
func (t *transfer) answerOnce(why wire.Status) {
	t.mu.Lock()
	open := t.window != nil
	t.window = nil
	t.mu.Unlock()
	if open {
		t.timer.Stop()
		t.end(why)
	}
}

// useWindow calls f with the window, unless the transfer was answered.
func (t *transfer) useWindow(f func(foreign.Memory)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.window == nil {
		return false
	}
	f(t.window.Memory().Part(wire.WindowOff, int(t.m.B)))
	return true
}

// moveBytes moves the bytes, closes the descriptors and answers.
func (t *transfer) moveBytes() {
	why := t.copy()
	t.fds.Close()
	t.answerOnce(why)
}

func (t *transfer) copy() wire.Status {
	places, ok := t.places(t.m.A, int(t.m.B))
	if !ok {
		return wire.StatusInvalid
	}
	put := t.m.C&1 != 0
	b := make([]byte, min(t.m.B, copyPiece))
	for _, p := range places {
		for ; p.off < p.end; p.off, p.address = p.off+len(b), p.address+int64(len(b)) {
			b = b[:min(p.end-p.off, cap(b))]
			if put {
				ok = t.useWindow(func(w foreign.Memory) { w.Part(p.off, len(b)).CopyTo(b) }) && putInOrder(t.memFD, b, p.address)
			} else {
				ok = moveAll(unix.Pread, t.memFD, b, p.address) && t.useWindow(func(w foreign.Memory) { w.Part(p.off, len(b)).Fill(b) })
			}
			if !ok {
				return wire.StatusDenied
			}
		}
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
	if !moveAll(unix.Pread, t.table, table, int64(8*first)) {
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
		return moveAll(unix.Pwrite, fd, b[:n], at) && moveAll(unix.Pwrite, fd, b[n:], at+int64(n))
	}
	return moveAll(unix.Pwrite, fd, b, at)
}

// moveAll returns whether call moves all of b at once.
func moveAll(call func(int, []byte, int64) (int, error), fd int, b []byte, at int64) bool {
	n, err := call(fd, b, at)
	return err == nil && n == len(b)
}
