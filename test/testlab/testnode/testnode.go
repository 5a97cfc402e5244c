// Package testnode asks the nodes of a test for their status. Package testlab cannot: the tests of
// package emp use it.
//
// # Architecture
//
//	test ─▶ Status ─▶ control socket of a node
//
// # Concurrency
//
// All functions may be called from many goroutines.
//
// # Limits
//
// For tests only.
package testnode

import (
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/node/control"
)

// Status asks a node of the fabric in dir.
func Status(dir string, id int) (*control.Status, error) {
	c, err := control.Dial(dir, emp.Description{Node: fabric.NodeID(id)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status()
}

// Sockets asks a node of the fabric in dir for its direct sockets.
func Sockets(dir string, id int) (*control.Sockets, error) {
	c, err := control.Dial(dir, emp.Description{Node: fabric.NodeID(id)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Sockets()
}

// Ports asks a node of the fabric in dir for the ports that programs have opened.
func Ports(dir string, id int) (*control.Ports, error) {
	c, err := control.Dial(dir, emp.Description{Node: fabric.NodeID(id)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Ports()
}

// Linked returns how many peers a node is linked with.
func Linked(s *control.Status) int {
	up := 0
	for _, p := range s.Peers {
		if p.State == "up" {
			up++
		}
	}
	return up
}
