package nic

import (
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// AttachConfig says to which node a program attaches. The zero AttachConfig is the node of this
// network namespace, or that whose socket EXN_PORTS names.
type AttachConfig struct {
	// Socket is the node's, as that of its status; @ begins one in the abstract namespace.
	Socket string
}

// Attach returns this program's share of the NIC of a node that is up ("exn-tun up"): its endpoints
// are ports of the node, as those of C programs by libvelo2 and librma2, and they reach each other.
// It has the API of a NIC of its own, with these differences: VPIDs are 32 to 255, and one belongs
// to one program of the node at a time; peers are ports of nodes of this host; memory that is lent
// to peers is from ATU().Alloc, and by whole pages. The multicast groups are those of the node, but
// for groups that the program joins nodes to (Routes().Join), which are its own. fabric.ErrNoRoute:
// there is no node, or it is another user's.
//
// When the node ends, peers are down: ErrPeerDown.
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
func (a attached) Tell(to fabric.VPID, m rma.Notification) bool { return a.rma.Tell(to, m) }
