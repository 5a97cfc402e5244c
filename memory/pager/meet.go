package pager

import (
	"errors"
	"fmt"

	"exnet/memory/pager/uffd"
	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// mostProcesses bounds the processes and connections of a Pager.
const mostProcesses = 4096

// acceptConnection takes a connection, of which nothing is known yet. Without a descriptor for
// it, it would be reported again at once, and is not before the next tick.
func (g *Pager) acceptConnection() {
	fd, _, err := unix.Accept4(g.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EINTR) {
			g.unwatchDescriptor(g.listener)
		}
		return
	}
	who, err := caller.OfFd(fd)
	if err != nil || g.trash.Full(who.Account) || len(g.sources) > 2*mostProcesses || g.watchDescriptor(fd, source{kind: ofStranger, account: who.Account}) != nil {
		g.trash.EndFd(who.Account, fd)
	}
}

// mostRights is how many descriptors a message has at most (SCM_MAX_FD). Those for which there
// is no room are closed by the kernel, in this thread.
const mostRights = 253

// receiveMessage reads a message of a user's process, with the descriptor that comes with it, -1
// if there is none.
func (g *Pager) receiveMessage(socket int, of caller.Account, to []byte) (n, fd int, err error) {
	fd = -1
	control := make([]byte, unix.CmsgSpace(4*mostRights))
	n, got, _, _, err := unix.Recvmsg(socket, to, control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return 0, -1, err
	}
	all, _ := unix.ParseSocketControlMessage(control[:got])
	for i := range all {
		fds, err := unix.ParseUnixRights(&all[i])
		if err != nil {
			continue
		}
		for _, f := range fds {
			if fd < 0 {
				fd = f
			} else {
				g.trash.Throw(of, f)
			}
		}
	}
	return n, fd, nil
}

// meetProcess reads a hello and answers it.
func (g *Pager) meetProcess(socket int, of caller.Account) {
	raw := make([]byte, helloLen+1)
	n, fd, err := g.receiveMessage(socket, of, raw)
	if errors.Is(err, unix.EAGAIN) {
		return
	}
	g.unwatchDescriptor(socket)
	var h hello
	if err == nil {
		h, err = parseHello(raw[:n])
	}
	if err == nil {
		err = g.admitProcess(socket, of, fd, h)
		fd = -1
	}
	if err != nil {
		if n > 0 {
			g.sayOnce("hello", "a process is not paged: %v", err)
		}
		_ = unix.Sendto(socket, appendWelcome(nil, true), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
		g.trash.Throw(of, socket)
	}
	g.trash.Throw(of, fd)
}

// admitProcess takes a process in whose agent has said hello. It takes fd.
func (g *Pager) admitProcess(socket int, of caller.Account, fd int, h hello) error {
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	if h.token != 0 {
		g.trash.Throw(of, fd)
		return g.admitChild(socket, peer, h)
	}
	p := &process{account: of, uffd: uffd.FD(fd), agent: -1, pages: newTable(), ring: newRing(g.standby), streams: g.newStreams()}
	switch {
	case h.why != 0:
		err = fmt.Errorf("userfaultfd: %w", unix.Errno(h.why))
	case len(g.processes) >= mostProcesses:
		err = fmt.Errorf("there are %d already", len(g.processes))
	case fd < 0 || !uffd.Is(fd):
		err = errWire
	default:
		err = p.uffd.Handshake()
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = p.openFor(peer, socket, h)
	}
	if err != nil {
		p.agent = -1
		p.closeProcess(&g.trash)
		return err
	}
	g.countProcess(p)
	err = errors.Join(g.watchDescriptor(fd, source{kind: ofUffd, p: p}), g.watchDescriptor(socket, source{kind: ofAgent, p: p}),
		unix.Sendto(socket, appendWelcome(nil, false), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil))
	if err != nil {
		g.dropProcess(p)
	}
	return nil
}

// admitChild takes the agent of a child of fork in, and gives it its userfaultfd.
func (g *Pager) admitChild(socket int, peer *unix.Ucred, h hello) error {
	for p := range g.processes {
		if p.token != h.token || p.agent >= 0 || p.hello.base != h.base || p.hello.slots != h.slots || p.hello.end != h.end {
			continue
		}
		if err := p.openFor(peer, socket, h); err != nil {
			return err
		}
		err := g.watchDescriptor(socket, source{kind: ofAgent, p: p})
		if err == nil {
			err = unix.Sendmsg(socket, appendWelcome(nil, false), unix.UnixRights(int(p.uffd)), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
		if err != nil {
			g.dropProcess(p)
		}
		return nil
	}
	return fmt.Errorf("process %d: %w", peer.Pid, errWire)
}

// countProcess counts a process as one of the Pager's.
func (g *Pager) countProcess(p *process) {
	g.counts.Adopted++
	p.number = g.counts.Adopted
	g.processes[p] = true
}

// dropProcess forgets a process, which has ended, or has another program now.
func (g *Pager) dropProcess(p *process) {
	if !g.processes[p] {
		return
	}
	delete(g.processes, p)
	g.tellEnd(p)
	if p.parent != nil {
		p.parent.forks--
	}
	for c := range g.processes {
		if c.unsettled == p {
			g.endForkWait(c)
		}
		if c.parent == p {
			c.noteOrphan()
		}
	}
	for _, c := range p.pages.chunks {
		for i := range c {
			g.places.endUse(c[i].place)
		}
	}
	if p.agent >= 0 {
		g.unwatchDescriptor(p.agent)
	}
	g.unwatchDescriptor(int(p.uffd))
	p.closeProcess(&g.trash)
}

// readReply reads what an agent has done.
func (g *Pager) readReply(p *process) {
	raw := make([]byte, replyLen+1)
	n, fd, err := g.receiveMessage(p.agent, p.account, raw)
	g.trash.Throw(p.account, fd)
	if errors.Is(err, unix.EAGAIN) {
		return
	}
	if err != nil || n == 0 || p.busy == 0 || fd >= 0 {
		g.dropProcess(p) // it has ended, or executes another program
		return
	}
	op, entries := p.busy, p.entries
	all, err := parseReply(raw[:n], op, entries)
	if err != nil {
		g.dropProcess(p)
		return
	}
	p.busy, p.entries = 0, nil
	switch op {
	case opMove:
		g.noteMoved(p, entries, all)
		g.readMessages(p)
	case opDrop:
		g.noteDropped(p, entries)
	case opOwn:
		g.noteOwned(p, entries, all)
	}
}
