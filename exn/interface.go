package exn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/fabric/route"
	"exnet/fabric/velo"
	"exnet/mtu"
	"exnet/napi"
)

// ErrStalled says that a frame was dropped because its peer accepts none. It
// wraps fabric.ErrAgain: a later frame may pass.
var ErrStalled = fmt.Errorf("exn: peer is stalled, frame dropped: %w", fabric.ErrAgain)

// Config configures an Interface. The zero value of a field means its default.
type Config struct {
	// NIC is the node's NIC. It is required.
	NIC *nic.NIC
	// MTU is the largest IP packet. Default mtu.Default.
	MTU mtu.Network
	// MACPrefix begins the MAC addresses of all nodes (figure 5.13). Default
	// arp.DefaultPrefix.
	MACPrefix arp.Prefix
	// VPID is the virtual process ID that EXN uses on every node. Default 0.
	VPID fabric.VPID
	// EagerThreshold is the length of the longest frame that goes over VELO,
	// in bytes. Default exteth.DefaultEagerThreshold.
	EagerThreshold int
	// VELOBudget and RMABudget are the NAPI budgets: messages and
	// notifications per poll. Default napi.DefaultBudget, 64.
	VELOBudget, RMABudget int
	// NAPI configures mode and limits of polling.
	NAPI napi.Config
	// Coalesce says which interrupts are held back. Default: none.
	Coalesce napi.Coalesce
	// Mailbox configures the VELO mailbox: its slots and the senders' credits.
	Mailbox velo.Config
	// Buffers is the number of frames that can wait to be sent or fetched.
	// Default 256, at least 4.
	Buffers int
	// Groups finds the fabric group of an IP multicast group. Default: all
	// multicast goes to the broadcast group.
	Groups Groups
	// Ethernet makes the fabric a switch: frames may come from and go to MAC addresses
	// that belong to no node. The interface learns which node such an address is behind;
	// a frame to an unknown address goes to all nodes. A VLAN tag does not count towards
	// the MTU. Without Ethernet, a frame to a foreign address is dropped.
	Ethernet bool
	// StallTime is how long a peer may keep the interface stopped while another node has a link;
	// while none has, that is AwayTime. Default 200 ms, TCP's shortest time-out: a peer on a busy
	// host takes no frames for some tens of milliseconds, and TCP waits longer and longer for each
	// frame that is dropped.
	StallTime time.Duration
	// GroupStallTime is how long a member may delay the frames of all groups. Default: a tenth of
	// StallTime.
	GroupStallTime time.Duration
	// AwayTime is how long frames wait for the next link to a peer whose link has ended. Default
	// 5 s: TCP waits longer and longer for each frame that is dropped.
	AwayTime time.Duration
	// TransferTimeout is how long a peer may take to fetch a frame. Default: see
	// exteth.Config.
	TransferTimeout time.Duration
	// OnReady is called when a stopped interface takes frames again. It must
	// not block.
	OnReady func()
}

// Groups is the part of the directory of multicast groups that an Interface
// needs; a multicast.Registry has it.
type Groups interface {
	// Lookup returns the fabric group for frames to an IP group, given as the
	// 4 or 16 address bytes of a packet, or false if the group has no members.
	// It is called for every multicast frame and borrows group until return.
	Lookup(group []byte) (fabric.GroupID, bool)
}

// maxPacket is the longest packet that a host hands over, whatever the MTU: one
// that still needs segmentation.
const maxPacket = mtu.MaxIPv4

const (
	defaultBuffers   = 256
	defaultStallTime = 200 * time.Millisecond
	defaultAwayTime  = 5 * time.Second
	expiryInterval   = time.Second
)

func (c Config) withDefaults() (Config, error) {
	if c.NIC == nil {
		return c, errors.New("exn: Config.NIC is nil: open one with nic.New")
	}
	if c.MTU == 0 {
		c.MTU = mtu.Default
	}
	if c.MACPrefix == (arp.Prefix{}) {
		c.MACPrefix = arp.DefaultPrefix()
	}
	if c.Buffers == 0 {
		c.Buffers = defaultBuffers
	}
	if c.StallTime == 0 {
		c.StallTime = defaultStallTime
	}
	if c.GroupStallTime == 0 {
		c.GroupStallTime = c.StallTime / 10
	}
	if c.AwayTime == 0 {
		c.AwayTime = defaultAwayTime
	}
	if c.OnReady == nil {
		c.OnReady = func() {}
	}
	if c.Buffers < 4 || c.StallTime < 0 || c.GroupStallTime < 0 || c.AwayTime < 0 {
		return c, fmt.Errorf("exn: %d buffers, stall times %v and %v, away time %v; use at least 4 and positive times", c.Buffers, c.StallTime, c.GroupStallTime, c.AwayTime)
	}
	_, err := mtu.New(int(c.MTU))
	return c, errors.Join(err, c.MACPrefix.Validate())
}

// Interface is the network interface exn0 of one node.
//
// Concurrency: all methods may be called from many goroutines; Run once.
type Interface struct {
	cfg      Config
	mac      arp.MAC
	port     *exteth.Port
	napi     *napi.Context
	event    event // NAPI's, unless Config.NAPI has one
	veloIRQ  *napi.Source
	rmaIRQ   *napi.Source
	receiver exteth.Receiver
	tap      atomic.Pointer[Tap]    // nil while nobody captures
	gate     atomic.Pointer[Gate]   // nil unless SetGate installed one
	filter   atomic.Pointer[Filter] // nil unless SetFilter installed one
	stations *stations              // nil without Config.Ethernet

	// backlog is the number of queues that hold frames; while it is 0, which
	// is nearly always, Transmit looks at no queue.
	backlog atomic.Int32
	away    atomic.Int32 // frames in the queues that wait for a link
	group   queue
	peers   route.NodeMap[queue]
	stopped atomic.Int32   // queues that stop the interface
	checks  sync.WaitGroup // calls of checkStalled to come or under way

	mu       sync.Mutex  // guards adding to peers, too
	stall    *time.Timer // guarded by mu; calls checkStalled
	watching bool        // guarded by mu; stall is set
	closed   bool        // guarded by mu; stall is never set again

	stats counters
}

// New makes the interface of a NIC. It receives frames after SetReceiver and
// Run are called. Close releases what New took.
func New(cfg Config) (*Interface, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	i := &Interface{cfg: cfg, mac: cfg.MACPrefix.MAC(cfg.NIC.ID()), group: queue{key: queueKey{group: true}}}
	if cfg.Ethernet {
		i.stations = newStations()
	}
	if i.event, err = newEvent(); err != nil {
		return nil, err
	}
	if cfg.NAPI.Event == nil {
		cfg.NAPI.Event = i.event
	}
	if i.napi, err = napi.New(cfg.NAPI); err != nil {
		return nil, errors.Join(err, i.event.close())
	}
	i.port, err = exteth.Open(cfg.NIC, exteth.Config{
		VPID:            cfg.VPID,
		EagerThreshold:  cfg.EagerThreshold,
		MaxFrame:        int(maxPacket.Link()),
		Buffers:         cfg.Buffers,
		TransferTimeout: cfg.TransferTimeout,
		VELO:            cfg.Mailbox,
		Receiver:        receiverFunc(i.receiveFrame),
		OnCredit:        i.onCredit,
		OnPeerDown:      i.linkEnded,
		OnUnread:        i.onUnread,
		OnBuffer:        cfg.OnReady,
		OnWork:          func() { i.veloIRQ.Schedule() },
	})
	if err != nil {
		return nil, errors.Join(err, i.event.close())
	}
	i.veloIRQ, err = i.napi.Register(napi.SourceConfig{
		Name: "velo", Poller: veloPoller{i.port}, Budget: cfg.VELOBudget, Coalesce: cfg.Coalesce,
	})
	if err == nil {
		i.rmaIRQ, err = i.napi.Register(napi.SourceConfig{
			Name: "rma", Poller: rmaPoller{i.port}, Budget: cfg.RMABudget, Coalesce: cfg.Coalesce,
		})
	}
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// SetReceiver sets the receiver of the frames. Call it once, before Run.
func (i *Interface) SetReceiver(r exteth.Receiver) { i.receiver = r }

// Run brings the interface up, and down again when ctx is cancelled. It returns
// nil once the last frame has been received.
func (i *Interface) Run(ctx context.Context) error {
	if i.receiver == nil {
		return errors.New("exn: Run before SetReceiver")
	}
	i.port.VELO().OnInterrupt(i.veloIRQ.Interrupt)
	i.port.RMA().OnInterrupt(i.rmaIRQ.Interrupt)
	i.veloIRQ.Schedule()
	i.rmaIRQ.Schedule()
	var expiry sync.WaitGroup
	defer expiry.Wait()
	stop := make(chan struct{})
	defer close(stop)
	expiry.Go(func() { i.expireUntil(stop) })
	return i.napi.Run(ctx)
}

// expireUntil takes back unfetched frames and forgets old stations, until stop is closed.
func (i *Interface) expireUntil(stop <-chan struct{}) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			i.port.Expire()
			if i.stations != nil {
				i.stations.dropSilent()
			}
		case <-stop:
			return
		}
	}
}

// Close releases the NIC's endpoints and drops the waiting frames. Run must have
// returned.
func (i *Interface) Close() error {
	i.mu.Lock()
	i.closed = true
	if i.stall != nil && i.stall.Stop() {
		i.checks.Done()
	}
	i.mu.Unlock()
	i.checks.Wait()
	return errors.Join(i.port.Close(), i.event.close())
}

// NodeID returns the node that the interface belongs to.
func (i *Interface) NodeID() fabric.NodeID { return i.cfg.NIC.ID() }

// MAC returns the interface's hardware address.
func (i *Interface) MAC() [6]byte { return i.mac }

// MTU returns the size of the largest IP packet.
func (i *Interface) MTU() int { return int(i.cfg.MTU) }

// EagerThreshold returns the length of the longest frame that goes over VELO.
func (i *Interface) EagerThreshold() int { return i.port.EagerThreshold() }
