package control

import (
	"exnet/directsockets/broker"
	"exnet/fabric"
)

// Operations of a Request.
const (
	OpStatus = "status"
	OpSet    = "set"
	OpStop   = "stop"
	// OpReplace is OpStop, but the interface stays: its descriptor comes with the Reply.
	OpReplace = "replace"
	// OpTopology asks how the fabric is wired, and what the node has put on each link.
	OpTopology = "topology"
	// OpSockets asks for the direct sockets of the node's namespace.
	OpSockets = "sockets"
	// OpPorts asks for the ports that processes have opened.
	OpPorts = "ports"
	// OpRegisters asks for the node's register file, after changing a register if Register
	// says so.
	OpRegisters = "registers"
	// OpProfile starts, reads or stops the count of who sends how much to whom.
	OpProfile = "profile"
	// OpRoute shows or changes the node's reservations of routes.
	OpRoute = "route"
	// OpLease shows or changes what memory the node lends.
	OpLease = "lease"
	// OpDirect shows or changes which connections may be direct.
	OpDirect = "direct"
	// OpRules replaces rules about which connections may be direct.
	OpRules = "rules"
	// OpHold keeps the connections of a rule on TCP until the client ends the connection, or ends.
	OpHold = "hold"
	// OpCapture is answered by a Reply and then, unless that has an error, a
	// capture as pcapng until the client ends its side of the connection.
	OpCapture = "capture"
)

// Request is a line of JSON that a client sends.
type Request struct {
	Op       string        `json:"op"`
	Settings *Settings     `json:"settings,omitempty"` // of OpSet
	SnapLen  int           `json:"snap_len,omitempty"` // of OpCapture: bytes of a frame; 0: all
	Route    *RouteRequest `json:"route,omitempty"`    // of OpRoute
	Register *SetRegister  `json:"register,omitempty"` // of OpRegisters; nil: only look
	Profile  string        `json:"profile,omitempty"`  // of OpProfile: ProfileStart, ProfileRead or ProfileStop
	Lease    *LeaseRequest `json:"lease,omitempty"`    // of OpLease
	// Direct is the rule of OpHold, and of OpDirect one to be added; nil: none.
	Direct *broker.Rule `json:"direct,omitempty"`
	// Rules is what OpRules sets.
	Rules *RulesRequest `json:"rules,omitempty"`
	// Node is a node of another host, to which the node that is asked forwards the Request;
	// nil: it answers itself. Only OpTopology, OpRoute and OpProfile are forwarded.
	Node *fabric.NodeID `json:"node,omitempty"`
}

// RulesRequest replaces all rules of a container by others, "": all rules.
type RulesRequest struct {
	Container string        `json:"container,omitempty"`
	Rules     []broker.Rule `json:"rules"`
}

// Reply is a line of JSON that answers a Request.
type Reply struct {
	Error     string        `json:"error,omitempty"`
	Status    *Status       `json:"status,omitempty"`    // of OpStatus
	Topology  *Topology     `json:"topology,omitempty"`  // of OpTopology; nil: the fabric has none
	Sockets   *Sockets      `json:"sockets,omitempty"`   // of OpSockets
	Ports     *Ports        `json:"ports,omitempty"`     // of OpPorts
	Registers *Registers    `json:"registers,omitempty"` // of OpRegisters
	Routes    *Reservations `json:"routes,omitempty"`    // of OpRoute
	Leases    *Leases       `json:"leases,omitempty"`    // of OpLease
	Direct    *Direct       `json:"direct,omitempty"`    // of OpDirect, OpRules and OpHold
	Profile   *Profile      `json:"profile,omitempty"`   // of OpProfile, except for ProfileStart
}

// Suffix is the suffix of a node's control socket among its files (emp.File).
const Suffix = ".ctl"

// MaxRequest bounds the length of a Request, in bytes.
const MaxRequest = 1 << 20
