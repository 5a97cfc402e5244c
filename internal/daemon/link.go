package daemon

import (
	"net"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link/shm"
)

// link joins the NIC with that of a peer.
func (d *Daemon) link(conn *net.UnixConn, _ fabric.NodeID) (emp.Link, error) {
	l, err := shm.Connect(d.nic, conn, shm.Config{})
	if err != nil {
		return nil, err // not a *shm.Link that is nil
	}
	d.groups.linked()
	return l, nil
}
