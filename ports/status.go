package ports

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
)

// Info describes an open port.
type Info struct {
	VPID    int
	Unit    string
	PID     int // 0: in a PID namespace that the node does not see
	UID     int
	Program string
	// Memory is the size of the registered memory in bytes: whole pages that were touched.
	Memory uint64
	Peers  int    // ports that write to it
	Queued uint64 // unread messages or notifications
	Slots  uint64 // limit of Queued
	// Counters are the process's own.
	Counters Counters
}

// Counters are counted by a process in its port's page. The node does not check them.
type Counters struct {
	Sent       uint64 // VELO messages, RMA operations
	Received   uint64 // messages, notifications
	PutBytes   uint64
	GetBytes   uint64
	Waits      uint64 // for a peer that does not read
	Errors     uint64 // operations that failed
	Registered uint64 // bytes
}

// Ports returns the open ports, in the order of VPID and unit.
func (s *Server) Ports() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Info{}
	for _, all := range s.ports {
		for _, p := range all {
			list = append(list, p.info())
		}
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.VPID, b.VPID), strings.Compare(a.Unit, b.Unit))
	})
	return list
}

// info describes p. The server's lock is held.
func (p *port) info() Info {
	i := Info{
		VPID: int(p.vpid), Unit: p.unit.String(), PID: int(p.pid), UID: int(p.rights.uid),
		Program: program(p.pid), Memory: allocatedBytes(p.memory), Peers: len(p.flows),
	}
	n, _ := wire.Slots(p.unit)
	for _, fd := range p.flows {
		i.Slots += uint64(n)
		// Either may be a lie; a flow holds at most its slots.
		i.Queued += min(readWord(fd, wire.FlowTail)-readWord(fd, wire.FlowHead), uint64(n))
	}
	i.Counters = p.counters()
	return i
}

// counters reads what the process has counted. The server's lock is held.
func (p *port) counters() (c Counters) {
	for k, v := range []*uint64{&c.Sent, &c.Received, &c.PutBytes, &c.GetBytes, &c.Waits, &c.Errors, &c.Registered} {
		*v = readWord(p.page, wire.Counters+8*int64(k))
	}
	return c
}

// Stats counts the traffic of a node's ports since the node began, including ports that have
// ended. The processes count it, since their data does not pass the node; it is not checked.
type Stats struct {
	Opened                   uint64
	VELOSent, VELOReceived   uint64 // messages
	RMASent                  uint64 // notifications written to peers
	RMAReceived              uint64 // notifications
	RMAPutBytes, RMAGetBytes uint64
	VELOWaits, RMAWaits      uint64 // for a peer that does not read
	VELOErrors, RMAErrors    uint64 // operations that failed
}

// addPort adds the counters of a port.
func (t *Stats) addPort(u wire.Unit, c Counters) {
	if u == fabric.UnitVELO {
		t.VELOSent += c.Sent
		t.VELOReceived += c.Received
		t.VELOWaits += c.Waits
		t.VELOErrors += c.Errors
		return
	}
	t.RMASent += c.Sent
	t.RMAReceived += c.Received
	t.RMAPutBytes += c.PutBytes
	t.RMAGetBytes += c.GetBytes
	t.RMAWaits += c.Waits
	t.RMAErrors += c.Errors
}

// Stats returns the counters of all ports.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.ended
	for u, all := range s.ports {
		for _, p := range all {
			sum.addPort(u, p.counters())
		}
	}
	return sum
}

// program returns the name of a process, or "" if it is not known.
func program(pid int32) string {
	if pid == 0 {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(name), "\n")
}
