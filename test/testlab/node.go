package testlab

import (
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/control"
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
