package broker

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"exnet/directsockets/broker/client"
	"exnet/node/rpc/caller"
)

// reservedSuffix makes the name of a Reservation's socket.
const reservedSuffix = ".node" + client.SocketSuffix

// Reservation keeps agents out of a network namespace. Only Close may be called, once.
type Reservation struct {
	place *place
	ended chan struct{}
}

// Reserve keeps agents out of the network namespace in which in runs a function, nil: that of the
// calling thread. A node is to serve it, as a node reaches other hosts. An agent that serves it
// leaves. The process with the Reservation may end without Close. ErrInUse: another one has it.
func Reserve(in func(func() error) error) (*Reservation, error) {
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	r := &Reservation{ended: make(chan struct{})}
	err := in(func() error {
		path, err := DefaultPath()
		if err == nil {
			r.place, err = takePlace(strings.TrimSuffix(path, client.SocketSuffix) + reservedSuffix)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.place.made = true
	go r.showOwner()
	return r, nil
}

// showOwner lets agents see whose the Reservation is.
func (r *Reservation) showOwner() {
	defer close(r.ended)
	for {
		conn, err := r.place.ln.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// Close lets agents in again.
func (r *Reservation) Close() error {
	err := r.place.removeSocket()
	<-r.ended
	return err
}

// Reserved reports whether a process of root has a Reservation of the network namespace with this
// inode. One of another PID namespace does not count: root of a container has the directory, too.
func Reserved(inode uint64) bool {
	path := filepath.Join(client.SystemDir, fmt.Sprint(inode)+reservedSuffix)
	conn, err := net.DialUnix(client.Network, nil, &net.UnixAddr{Name: path, Net: client.Network})
	if err != nil {
		return false // it is gone, or left by a node that was killed
	}
	defer conn.Close()
	return caller.InPIDs(conn) && caller.Trusted(conn) == nil
}
