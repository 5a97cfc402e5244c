package daemon

import (
	"net"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link/shm"
)

// link joins the NIC with that of a peer.
func (d *Daemon) link(conn *net.UnixConn, peer fabric.NodeID) (emp.Link, error) {
	var card shm.NIC = d.nic
	if d.crossbars != nil {
		card = routed{d.nic, d.crossbars}
	}
	l, err := shm.Connect(card, conn, shm.Config{Driver: d.loop})
	if err != nil {
		return nil, err // not a *shm.Link that is nil
	}
	d.groups.linked()
	d.sockets.linked(peer, l)
	return l, nil
}
