package daemon

import (
	"errors"

	"exnet/fabric"
	"exnet/node/control"
	"exnet/node/rpc/far"
	"exnet/ports"
)

// portsSuffix makes the name of the socket by which the port servers of a fabric meet.
const portsSuffix = ".ports"

// portsSocket is the name in the abstract namespace where processes of the node's network
// namespace find it; $EXN_PORTS names another.
const portsSocket = "@exn-ports"

// nodePorts serves the ports of the node's NIC to the processes of its network namespace.
//
// Concurrency: as service.
type nodePorts struct {
	service
	server *ports.Server
	mover  *far.Mover // to ports of other hosts; nil: there are none
}

func init() { offers = append(offers, openPorts) }

// openPorts makes the sockets.
func openPorts(d *Daemon) (offered, error) {
	p := &nodePorts{service: service{
		what: "ports", without: "programs cannot use the NIC",
		suffix: portsSuffix, socket: portsSocket, registers: registersPorts,
	}}
	if err := p.openFar(d, far.Config{VPID: far.VPID, Direct: true, Resume: far.Resume}); err != nil {
		return p, err
	}
	cfg := ports.Config{
		Driver: d.loop,
		Node:   d.member.ID(), Dial: p.dialNode(d.cfg.Dir), CheckPeer: d.member.CheckNode,
		Registers: registerFile{d},
		Members:   func(g fabric.GroupID) []fabric.NodeID { return d.nic.Routes().Members(g) },
	}
	if p.far != nil {
		var err error
		if p.mover, err = far.NewMover(d.nic); err != nil {
			return p, err
		}
		cfg.Far, cfg.Mover = p.far, p.mover
	}
	p.server = ports.New(cfg)
	return p, p.listenAll(d, p.server)
}

// closeFar gives back what reaches other hosts.
func (p *nodePorts) closeFar() error {
	err := p.service.closeFar()
	if p.mover != nil {
		err = errors.Join(err, p.mover.Close())
	}
	return err
}

func (p *nodePorts) counters() any { return p.server.Stats() }

// answerRequest answers with the open ports of the node.
func (p *nodePorts) answerRequest(req control.Request, r *control.Reply) (bool, error) {
	if req.Op != control.OpPorts {
		return false, nil
	}
	r.Ports = p.listPorts()
	return true, nil
}

func (p *nodePorts) listPorts() *control.Ports {
	all := &control.Ports{Node: int(p.member.ID()), Ports: []control.Port{}}
	for _, i := range p.server.Ports() {
		all.Ports = append(all.Ports, control.Port{
			VPID: i.VPID, Unit: i.Unit, PID: i.PID, UID: i.UID, Program: i.Program,
			Memory: i.Memory, Peers: i.Peers, Queued: i.Queued, Slots: i.Slots, Counters: control.PortCounters(i.Counters),
		})
	}
	return all
}
