package control

import "exnet/ports"

// Ports are the ports that processes have opened at a node.
type Ports struct {
	Node  int          `json:"node"`
	Ports []ports.Info `json:"ports"`
}

// Registers is the register file of a node.
type Registers struct {
	Node      int        `json:"node"`
	Registers []Register `json:"registers"`
}

// Register is a register of 64 bits.
type Register struct {
	Addr     uint64 `json:"addr"`
	Name     string `json:"name"`
	Value    uint64 `json:"value"`
	Writable bool   `json:"writable,omitempty"` // by root
}

// SetRegister asks to change a register.
type SetRegister struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Ports asks for the ports that processes have opened.
func (c *Client) Ports() (*Ports, error) {
	r, err := c.ask(Request{Op: OpPorts})
	if err == nil && r.Ports == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Ports, err
}

// Registers asks for the register file. It changes a register first, unless set is nil.
func (c *Client) Registers(set *SetRegister) (*Registers, error) {
	r, err := c.ask(Request{Op: OpRegisters, Register: set})
	if err == nil && r.Registers == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Registers, err
}
