package topo

import (
	"fmt"
	"strconv"

	"exnet/fabric"
)

// Port is an output of a node's crossbar.
type Port uint8

// The ports of a node: six for a torus, and a seventh (thesis 3.1). PortHost and
// PortNone are entries of tables, not places for a link.
const (
	PortXPlus Port = iota
	PortXMinus
	PortYPlus
	PortYMinus
	PortZPlus
	PortZMinus
	Port7
	Ports // number of ports of a node

	PortHost             // the packet has arrived
	PortNone Port = 0xff // no path to the node
)

var portNames = [...]string{"x+", "x-", "y+", "y-", "z+", "z-", "7", "", "host"}

// Valid reports whether a link can be at p.
func (p Port) Valid() bool { return p < Ports }

// String returns the name of p as ParsePort reads it: "x+", "7".
func (p Port) String() string {
	switch {
	case p.Valid() || p == PortHost:
		return portNames[p]
	case p == PortNone:
		return "none"
	}
	return "port(" + strconv.Itoa(int(p)) + ")"
}

// ParsePort reads the name of a port. The error wraps fabric.ErrInvalid.
func ParsePort(s string) (Port, error) {
	for p := range Ports {
		if s == portNames[p] {
			return p, nil
		}
	}
	return 0, fmt.Errorf("port %q: use x+, x-, y+, y-, z+, z- or 7: %w", s, fabric.ErrInvalid)
}
