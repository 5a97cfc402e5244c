package control

// Ports are the ports that processes have opened at a node.
type Ports struct {
	Node  int    `json:"node"`
	Ports []Port `json:"ports"`
}

// Port is an open port.
type Port struct {
	VPID    int    `json:"vpid"`
	Unit    string `json:"unit"`
	PID     int    `json:"pid"` // 0: in a PID namespace that the node does not see
	UID     int    `json:"uid"`
	Program string `json:"program,omitempty"`
	// Memory is the size of the registered memory in bytes: whole pages that were touched.
	Memory uint64 `json:"memory"`
	Peers  int    `json:"peers"`  // ports that write to it
	Queued uint64 `json:"queued"` // unread messages or notifications
	Slots  uint64 `json:"slots"`  // limit of Queued
	// Counters are the process's own.
	Counters PortCounters `json:"counters"`
}

// PortCounters are counted by a process in its port's page. The node does not check them.
type PortCounters struct {
	Sent       uint64 `json:"sent"`     // VELO messages, RMA operations
	Received   uint64 `json:"received"` // messages, notifications
	PutBytes   uint64 `json:"put_bytes"`
	GetBytes   uint64 `json:"get_bytes"`
	Waits      uint64 `json:"waits"`      // for a peer that does not read
	Errors     uint64 `json:"errors"`     // operations that failed
	Registered uint64 `json:"registered"` // bytes
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
	r, err := c.roundTrip(Request{Op: OpPorts})
	if err == nil && r.Ports == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Ports, err
}

// Registers asks for the register file. It changes a register first, unless set is nil.
func (c *Client) Registers(set *SetRegister) (*Registers, error) {
	r, err := c.roundTrip(Request{Op: OpRegisters, Register: set})
	if err == nil && r.Registers == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Registers, err
}
