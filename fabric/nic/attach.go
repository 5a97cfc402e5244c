package nic

import (
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// AttachConfig says which node a program attaches to. The zero AttachConfig means the node whose
// socket EXN_PORTS names, or else the node of this network namespace.
type AttachConfig struct {
	// Socket is the node's control socket; a leading @ means the abstract namespace.
	Socket string
}

// Attach returns this program's share of the NIC of a node that is up ("exn-tun up"). Its endpoints
// are ports of the node, and reach those of C programs that use libvelo2 and librma2. Compared with
// a NIC of New:
//
//   - VPIDs are 32 to 255, and only one program of the node can open each;
//   - peers are ports of nodes of this host;
//   - memory that peers access comes from ATU().Alloc, in whole pages;
//   - the multicast groups are those of the node, except groups that the program joins nodes to
//     (Routes().Join), which belong to the program.
//
// The error wraps fabric.ErrNoRoute if there is no node, or if it belongs to another user. When the
// node ends, sends return fabric.ErrPeerDown.
func Attach(cfg AttachConfig) (*NIC, error) {
	l, err := attach.New(cfg.Socket)
	if err != nil {
		return nil, err
	}
	n := &NIC{id: l.Node(), atu: atu.New(l.Node()), node: l}
	n.atu.Share(l.Arena(), l)
	n.velo = velo.NewUnit(n.id, &n.routes)
	n.rma = rma.NewUnit(n.id, n.atu, &n.routes)
	n.rma.OnClose(func(v fabric.VPID) { l.Shut(fabric.UnitRMA, v) })
	l.Serve(attached{n})
	n.routes.Otherwise(l.To)
	n.routes.Elsewhere(l.Members)
	n.AddLink(l)
	return n, nil
}

// attached is what the link needs.
type attached struct{ *NIC }

// Tell implements attach.NIC.
func (a attached) Tell(to fabric.VPID, m rma.Notification, isOurs func() bool) bool {
	return a.rma.Tell(to, m, isOurs)
}
