package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
	"exnet/napi"
	"exnet/node/rpc"
)

// Errors.
var (
	// ErrClosed says that the Engine is closed.
	ErrClosed = fmt.Errorf("relay: closed: %w", rpc.ErrOver)
	// ErrTooMany says that there are as many connections to the node as there may be.
	ErrTooMany = fmt.Errorf("relay: %w to one node", rpc.ErrTooMany)
	// ErrAttached says that the server has taken the segment, which is offered once more.
	ErrAttached = errors.New("relay: the server has attached")
	// ErrGone says that no node is linked that has this ID.
	ErrGone = fmt.Errorf("relay: no link to the node: %w", rpc.ErrOver)
	// errPeer says that another node has broken the protocol.
	errPeer = errors.New("relay: the peer broke the protocol")
)

// Versions are those of the messages between Engines. Version 4 differs from 5 only in that its
// Engines speak no other version; version 6 has PART, version 7 PAUSE. An Engine speaks to each
// node in the version on which their brokers have agreed (Speak), and understands all of these:
// HELLO says in which one its sender speaks. The brokers see to it that nodes without a common
// version carry nothing for each other.
var Versions = rpc.Versions{Oldest: 4, Newest: 7}

// VPIDs that an Engine uses (see the package). They are the node's own; processes have higher ones
// (package ports).
const (
	ControlVPID fabric.VPID = 15
	FirstVPID   fabric.VPID = 16 // of virtual device 0
	Devices                 = 16
)

// What a peer may ask for: what a program takes (SPEC.md, 5.1).
const (
	MaxSlots = 4096
	MaxRing  = 4 << 20
)

// Offer is a connection that a program on another host offers to one here.
type Offer struct {
	Node fabric.NodeID
	ID   uint32 // the far broker's number of it
	Info segment.Info
	// Segment and Bell are descriptors that the receiver of the Offer owns: it hands them to
	// the server's program, or closes them.
	Segment, Bell int
}

// Config configures an Engine. The zero value of a field means its default.
type Config struct {
	// NIC is the node's NIC. Required.
	NIC *nic.NIC
	// Driver is the thread that waits for the programs' doorbells. Without one the Engine
	// has a goroutine.
	Driver link.Driver
	// NAPI configures mode and limits of polling.
	NAPI napi.Config
	// Budget is how many messages one poll moves. Default 2048: what gathers goes in one batch.
	Budget int
	// Mailbox is that of each virtual device. Default: 4096 slots, 512 credits.
	Mailbox velo.Config
	// MaxConns is how many connections to one node there may be. Default 1024.
	MaxConns int
	// Offered gets the connections that programs of other hosts offer. It must not block. Required.
	Offered func(Offer)
	// Note gets messages of the brokers of other nodes. It borrows b until return, and must not
	// block. Default: they are dropped.
	Note func(from fabric.NodeID, b []byte)
	// Answer gets a packet for the program here, as if it had come from the node (Probe). Its TCP
	// header begins at tcp, and its checksum is to be completed from there. It borrows packet until
	// return, and must not block. Default: there is none.
	Answer func(from fabric.NodeID, packet []byte, tcp int)
	// Patience tells how long TCP would go on repeating data that nobody acknowledges, and so how
	// long a connection waits for its link. It is called whenever that is to be known, with no lock
	// held, and must not block. Default: Patience(DefaultRetries).
	Patience func() time.Duration
	// Log is told about peers that break the rules. Default: nobody.
	Log *slog.Logger

	notifications int // notifications that wait in each mailbox's RMA unit; tests have few

	// stepping is called before each step of a connection's life, unless it is nil: tests end the
	// node there.
	stepping func(c *conn, ev lifeEvent)
}

const (
	defaultSlots, defaultCredits = 4096, 512
	defaultBudget                = 2048
	defaultInline                = 1 << 16 // messages that the driver's thread moves before it looks at its other links
	defaultConns                 = 1024
	// defaultNotifications is the size of a box's queue: half of it is for PUTs of peers.
	defaultNotifications = 1 << 14
)

func (c Config) withDefaults() (Config, error) {
	if c.NIC == nil || c.Offered == nil {
		return c, fmt.Errorf("relay: Config.NIC or Config.Offered is nil: %w", fabric.ErrInvalid)
	}
	if c.Budget == 0 {
		c.Budget = defaultBudget
	}
	if c.NAPI.InlineBudget == 0 {
		c.NAPI.InlineBudget = defaultInline
	}
	if c.Mailbox == (velo.Config{}) {
		c.Mailbox = velo.Config{Slots: defaultSlots, Credits: defaultCredits}
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultConns
	}
	if c.notifications == 0 {
		c.notifications = defaultNotifications
	}
	if c.Patience == nil {
		c.Patience = func() time.Duration { return defaultPatience }
	}
	if c.Note == nil {
		c.Note = func(fabric.NodeID, []byte) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Budget < 1 || c.MaxConns < 1 {
		return c, fmt.Errorf("relay: budget %d, %d connections: use at least 1: %w", c.Budget, c.MaxConns, fabric.ErrInvalid)
	}
	return c, nil
}
