package ports

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// party is one end of a pair of ports: a port here, or a peer node's.
type party interface {
	addr() wire.Addr
	// gone reports that the other end of its pair has ended.
	gone(other wire.Addr)
}

// rights decide which ports may reach each other.
type rights struct {
	uid     uint32
	protect uint16
}

// mayReach returns whether ports with these rights may reach each other.
func (r rights) mayReach(to rights) bool {
	return r.protect == to.protect && (r.uid == to.uid || r.uid == 0)
}

// port is an open port of a process. The server's lock guards its fields, except for the outbox.
type port struct {
	server  *Server
	vpid    fabric.VPID
	unit    wire.Unit
	rights  rights
	account caller.Account // whose limits apply
	pid     int32
	link    *rpc.Link[wire.Message]
	asking  bool // a peer node has not answered its request yet

	// Descriptors. A VELO port has neither memory nor a table: -1. Peers get the table to read.
	page, bell, memory, table int
	memFD                     int                 // of its process's memory (OpReach), or -1
	events                    *counter            // in the page
	mapped                    *views              // of an RMA port that those of other hosts use, or nil
	flows                     map[wire.Addr]int   // descriptors, of those who write to this port
	pairs                     map[wire.Addr]party // parties that share memory with it, in either direction
}

// newPort makes the memory of a port, and returns the descriptors that only its process gets: the
// bell's reading end and, for an RMA port, the writable table. The caller closes these, and gives
// the port a VPID. theirs is the memory of an RMA port, which newPort takes, or -1 for new
// memory.
func (s *Server) newPort(u wire.Unit, theirs int) (_ *port, _ []int, err error) {
	var grant []int
	p := &port{server: s, unit: u, page: -1, bell: -1, memory: theirs, table: -1, memFD: -1, flows: make(map[wire.Addr]int), pairs: make(map[wire.Addr]party)}
	defer func() {
		if err != nil {
			p.close()
			closeAll(grant...)
		}
	}()
	if p.page, err = sealedMemory("exnet-port", wire.PageSize); err != nil {
		return nil, nil, err
	}
	if p.events, err = mapCounter(p.page); err != nil {
		return nil, nil, err
	}
	var pipe [2]int
	if err = unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, fmt.Errorf("ports: bell: %w", err)
	}
	p.bell, grant = pipe[1], []int{pipe[0]}
	if u != fabric.UnitRMA {
		return p, grant, nil
	}
	if theirs < 0 {
		if p.memory, err = sealedMemory("exnet-port-memory", wire.MemorySize); err != nil {
			return nil, nil, err
		}
	}
	table, err := sealedMemory("exnet-port-table", wire.TableSize)
	if err != nil {
		return nil, nil, err
	}
	grant = append(grant, table)
	if p.table, err = reopen(table, unix.O_RDONLY); err != nil {
		return nil, nil, err
	}
	return p, grant, nil
}

func (p *port) addr() wire.Addr { return wire.Addr{Node: p.server.cfg.Node, VPID: p.vpid} }

// gone implements party. The server's lock is held.
func (p *port) gone(other wire.Addr) {
	delete(p.pairs, other)
	if fd, ok := p.flows[other]; ok {
		closeAll(fd)
		delete(p.flows, other)
	}
	p.event(wire.Message{Op: wire.OpGone, Addr: other, Unit: p.unit})
}

// event posts a message that the process did not ask for, then counts it in the port's page. A
// process that does not read events loses its port.
func (p *port) event(m wire.Message, fds ...int) {
	if p.sendToProcess(m, fds...) == nil {
		p.events.increment()
	}
}

// sendToProcess sends a message to the process. When that fails the connection ends.
func (p *port) sendToProcess(m wire.Message, fds ...int) error {
	return p.link.Post(m, nil, fds...)
}

// close frees the descriptors.
func (p *port) close() {
	closeAll(p.page, p.bell, p.memory, p.table, p.memFD)
	p.page, p.bell, p.memory, p.table, p.memFD = -1, -1, -1, -1, -1
	for _, fd := range p.flows {
		closeAll(fd)
	}
	clear(p.flows)
	p.events.unmap()
	if p.mapped != nil {
		p.mapped.memory.Retire()
		p.mapped.table.Retire()
	}
}

// grantTo grants the memory of p to a party with the rights r, and returns what to send to it:
// the flow, the bell, and an RMA port's memory and table. The server's lock is held. The
// descriptors stay p's, except for the bell's, which the caller closes; bell is -1 if there is
// none.
func (p *port) grantTo(from party, r rights, u wire.Unit) (fds []int, bell int, why wire.Status) {
	switch {
	case u != p.unit:
		return nil, -1, wire.StatusNoPort
	case !r.mayReach(p.rights):
		return nil, -1, wire.StatusDenied
	}
	// Each peer gets its own open file: a peer that clears O_NONBLOCK blocks only itself.
	bell, err := reopen(p.bell, unix.O_WRONLY|unix.O_NONBLOCK)
	if errors.Is(err, unix.ENXIO) { // the process has ended a moment ago
		return nil, -1, wire.StatusNoPort
	}
	if err != nil {
		return nil, -1, wire.StatusFull
	}
	who := from.addr()
	fd, ok := p.flows[who]
	if !ok {
		n, size := wire.Slots(u)
		if fd, err = sealedMemory("exnet-flow", wire.FlowHeader+n*size); err != nil {
			return nil, bell, wire.StatusFull
		}
		p.flows[who] = fd
		p.pairs[who] = from
		p.event(wire.Message{Op: wire.OpFlow, Addr: who, Unit: u}, fd)
	}
	fds = []int{fd, bell}
	if p.memory >= 0 {
		fds = append(fds, p.memory, p.table)
	}
	return fds, bell, wire.StatusOK
}
