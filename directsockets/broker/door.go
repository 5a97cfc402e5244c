package broker

import (
	"net"

	"exnet/directsockets/broker/client"
)

// Door is the socket by which programs announce themselves to an agent (SPEC.md, 6). The connection
// itself is the announcement; nothing is sent.
type Door struct{ place *place }

// OpenDoor makes the socket, in place of one that a killed agent left. ErrInUse: there is an agent.
// Close removes it.
func OpenDoor(path string) (*Door, error) {
	p, err := takePlace(path)
	if err != nil {
		return nil, err
	}
	return &Door{p}, nil
}

// DoorPath is where programs look for it.
const DoorPath = client.DoorPath

// Listener accepts those who connect. It is lent until Close.
func (d *Door) Listener() *net.UnixListener { return d.place.ln }

// Close ends it.
func (d *Door) Close() error { return d.place.removeSocket() }
