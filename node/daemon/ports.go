package daemon

import (
	"errors"

	"exnet/fabric"
	"exnet/node/control"
	"exnet/ports"
	"exnet/ports/far"
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

// openPorts makes the sockets.
func (d *Daemon) openPorts() (*nodePorts, error) {
	p := &nodePorts{service: service{
		what: "ports", without: "programs cannot use the NIC",
		suffix: portsSuffix, socket: portsSocket, refused: &d.refused.Ports,
	}}
	if err := p.openFar(d, far.Config{VPID: far.VPID, Direct: true, Resume: far.Resume}); err != nil {
		return p, err
	}
	cfg := ports.Config{
		Driver: d.loop,
		Node:   d.member.ID(), Dial: p.dial(d.cfg.Dir), CheckPeer: d.member.CheckNode,
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
	return p, p.listen(d, p.server)
}

// closeFar gives back what reaches other hosts.
func (p *nodePorts) closeFar() error {
	err := p.service.closeFar()
	if p.mover != nil {
		err = errors.Join(err, p.mover.Close())
	}
	return err
}

// Ports returns the open ports of the node.
func (d *Daemon) Ports() *control.Ports {
	return &control.Ports{Node: int(d.member.ID()), Ports: d.ports.server.Ports()}
}
