package exteth

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// Thresholds between the eager and the rendezvous protocol, in bytes of frame
// (thesis section 5.4.6.2: between 120 and 480 bytes, at most four messages).
const (
	MinEagerThreshold     = velo.MaxPayload
	DefaultEagerThreshold = 4 * velo.MaxPayload
)

// MaxTransfers is how many GETs a Port has under way at most. Its sink has a window
// for each.
const MaxTransfers = 128

// maxPeerTransfers is how many of them are with one peer at most: a peer that stalls
// cannot take them all. Further adverts of the peer wait for its own transfers to
// end; the messages behind them do not.
const maxPeerTransfers = MaxTransfers / 4

// maxPeerLoans is how many frames may be advertised to one peer at a time. It bounds
// the waiting adverts that a receiver keeps for each peer.
const maxPeerLoans = 128

// HeadLen is how many bytes of a received frame are private memory; a shorter frame is
// private as a whole. The headers fit: Ethernet 14, IPv6 40 or IPv4 with most options,
// and TCP 60, rounded up to cache lines.
const HeadLen = (EthernetHeaderLen + 40 + 60 + 63) / 64 * 64

// Errors of a Port.
var (
	// ErrAgain says that the peer has no credit now, or holds its share of the
	// buffers. The buffer stays with the caller, who sends it again after
	// Config.OnCredit is called for the peer.
	ErrAgain = fabric.ErrAgain
	// ErrFrameSize says that a frame is shorter than an Ethernet header or
	// longer than Config.MaxFrame.
	ErrFrameSize = errors.New("exteth: frame size out of range")
	// ErrGroupGSO says that a group frame needs segmentation, which multicast
	// messages cannot defer to the receiver.
	ErrGroupGSO = errors.New("exteth: a group frame cannot be segmented by its receivers")
)

// Receiver takes the frames that arrive at a Port.
type Receiver interface {
	// ReceiveFrame handles a frame from node src, Ethernet header first. It borrows frame until
	// return. The first HeadLen bytes of frame, or all of a shorter one, are its Head; src may
	// change the Rest meanwhile. Only the offload metadata was checked, against the frame's
	// length. An error means that the frame was dropped; the Port counts it. ReceiveFrame runs in
	// the poller's goroutine. A link that completes GETs in its own goroutines calls it there, for
	// several frames at a time.
	ReceiveFrame(src fabric.NodeID, off Offload, frame foreign.Frame) error
}

// Config configures a Port. The zero value of a field means its default.
type Config struct {
	// VPID is the virtual process ID that the Port uses on every node, for VELO
	// and RMA alike. Default 0.
	VPID fabric.VPID
	// EagerThreshold is the length of the longest frame that goes eagerly, in
	// bytes. Default DefaultEagerThreshold; at least MinEagerThreshold.
	EagerThreshold int
	// MaxFrame is the length of the longest frame, in bytes. Default: the
	// longest that a 65535-byte IP packet makes.
	MaxFrame int
	// Buffers is the number of TxBuffers. Default 256.
	Buffers int
	// TransferTimeout is how long a peer may take to GET a frame that was
	// advertised to it. Default 2 s.
	TransferTimeout time.Duration
	// VELO configures the mailbox.
	VELO velo.Config
	// Receiver takes the frames. It is required.
	Receiver Receiver
	// OnCredit is called when a peer for which a send returned ErrAgain may take
	// frames again. It must not block.
	OnCredit func(fabric.NodeID)
	// OnPeerDown is called when the link to a peer has ended. It must not block.
	OnPeerDown func(fabric.NodeID)
	// OnUnread takes a buffer that was lent to a peer whose link has ended. It is called after
	// OnPeerDown, for the buffers in the order in which they were sent. The peer may have read
	// it, and could not say so. It must not block. Default: the buffer is freed.
	OnUnread func(fabric.NodeID, *TxBuffer)
	// OnBuffer is called when a buffer is free again after Alloc found none. It
	// must not block.
	OnBuffer func()
	// OnWork is called by PollRMA when PollVELO, which had left messages in the
	// mailbox because no transfer was free, can handle them.
	OnWork func()
}

const defaultMaxFrame = EthernetHeaderLen + 65535

func (c Config) withDefaults() (Config, error) {
	if c.EagerThreshold == 0 {
		c.EagerThreshold = DefaultEagerThreshold
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = defaultMaxFrame
	}
	if c.Buffers == 0 {
		c.Buffers = 256
	}
	if c.TransferTimeout == 0 {
		c.TransferTimeout = 2 * time.Second
	}
	if c.OnCredit == nil {
		c.OnCredit = func(fabric.NodeID) {}
	}
	if c.OnPeerDown == nil {
		c.OnPeerDown = func(fabric.NodeID) {}
	}
	if c.OnBuffer == nil {
		c.OnBuffer = func() {}
	}
	if c.OnWork == nil {
		c.OnWork = func() {}
	}
	switch {
	case c.Receiver == nil:
		return c, errors.New("exteth: Config.Receiver is nil: set what takes the frames")
	case c.MaxFrame < EthernetHeaderLen || c.MaxFrame > MaxFrame:
		return c, fmt.Errorf("exteth: MaxFrame of %d bytes; use %d to %d", c.MaxFrame, EthernetHeaderLen, MaxFrame)
	case c.EagerThreshold < MinEagerThreshold || c.EagerThreshold > c.MaxFrame:
		return c, fmt.Errorf("exteth: eager threshold of %d bytes; use %d to %d", c.EagerThreshold, MinEagerThreshold, c.MaxFrame)
	case c.Buffers < 1:
		return c, fmt.Errorf("exteth: %d buffers; at least 1 is needed", c.Buffers)
	case c.TransferTimeout < 0:
		return c, fmt.Errorf("exteth: transfer timeout %v is negative", c.TransferTimeout)
	}
	return c, nil
}

// Port sends and receives the Ethernet frames of one node.
//
// Concurrency: Alloc, Free, Send, Post, Flush, SendGroup and Expire may be
// called from many goroutines. PollVELO and PollRMA have one caller at a time
// between them. Close is called once nobody polls any more.
type Port struct {
	cfg   Config
	nic   *nic.NIC
	velo  *velo.Endpoint
	rma   *rma.Endpoint
	epoch time.Time

	pool        pool
	peers       peerTable
	outstanding atomic.Int64 // buffers lent by rendezvous

	tx sync.Mutex // held while the messages of one frame are put into mailboxes
	// groupFrame is the group frame that waits for credit with some of its
	// messages sent; no other may be started.
	groupFrame *TxBuffer       // guarded by tx
	audience   []fabric.NodeID // guarded by tx; who gets the group frame that was begun last
	hearing    []fabric.NodeID // guarded by tx; memory for an audience that is not the whole group
	members    int             // guarded by tx; members of that group when the frame was begun
	deaf       int             // guarded by tx; number of deaf peers
	credited   credited
	bells      bells

	sink sink
	// starved says that PollVELO left an advert in the mailbox, for lack of a
	// transfer. It belongs to the poller.
	starved bool

	stats counters
}

// Open makes the Port of a NIC. Close releases what Open took.
func Open(n *nic.NIC, cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Port{cfg: cfg, nic: n, epoch: time.Now()}
	if cfg.OnUnread == nil {
		p.cfg.OnUnread = func(_ fabric.NodeID, b *TxBuffer) { p.Free(b) }
	}
	if p.velo, err = n.OpenVELO(cfg.VPID, cfg.VELO); err != nil {
		return nil, fmt.Errorf("exteth: open VELO: %w", err)
	}
	if p.rma, err = n.OpenRMA(cfg.VPID, rma.Config{}); err != nil {
		return nil, errors.Join(fmt.Errorf("exteth: open RMA: %w", err), p.velo.Close())
	}
	if err := errors.Join(p.pool.allocate(n.ATU(), cfg), p.sink.allocate(p)); err != nil {
		return nil, errors.Join(fmt.Errorf("exteth: register memory: %w", err), p.Close())
	}
	p.velo.OnCredit(p.onCredit)
	p.velo.OnPeerDown(func(n fabric.NodeID) {
		p.cfg.OnPeerDown(n)
		p.reclaimLent(p.peers.peerOf(n))
	})
	return p, nil
}

// VELO returns the endpoint whose interrupt announces work for PollVELO.
func (p *Port) VELO() *velo.Endpoint { return p.velo }

// RMA returns the endpoint whose interrupt announces work for PollRMA.
func (p *Port) RMA() *rma.Endpoint { return p.rma }

// EagerThreshold returns the length of the longest frame that goes eagerly.
func (p *Port) EagerThreshold() int { return p.cfg.EagerThreshold }

// Close releases the endpoints and the registered memory. Frames not yet fetched
// are lost.
func (p *Port) Close() error {
	return errors.Join(p.velo.Close(), p.rma.Close(), p.sink.close(), p.pool.close())
}

func (p *Port) now() int64 { return int64(time.Since(p.epoch)) }

// pool is the free list of TxBuffers, last in first out, so that the next
// frame finds a buffer that is warm in the cache.
type pool struct {
	mu     sync.Mutex
	free   *TxBuffer // guarded by mu
	wanted bool      // guarded by mu; Alloc found none
	all    []*TxBuffer
	atu    *atu.ATU
	arena  []byte // the memory of all
}

func (q *pool) allocate(a *atu.ATU, cfg Config) error {
	const page = 4096
	stride := (Headroom + cfg.MaxFrame - EthernetHeaderLen + page - 1) / page * page
	arena, err := a.Alloc(stride * cfg.Buffers) // so that links can share it
	if err != nil {
		return err
	}
	q.atu, q.arena = a, arena
	for i := range cfg.Buffers {
		mem := arena[i*stride : (i+1)*stride : (i+1)*stride]
		region, err := a.Register(cfg.VPID, mem, atu.Read)
		if err != nil {
			return err
		}
		b := &TxBuffer{mem: mem, region: region, next: q.free}
		q.free = b
		q.all = append(q.all, b)
	}
	return nil
}

func (q *pool) close() error {
	var errs []error
	for _, b := range q.all {
		errs = append(errs, b.region.Close())
	}
	if q.arena != nil {
		q.atu.Free(q.arena)
		q.arena = nil
	}
	return errors.Join(errs...)
}

// Alloc returns a free buffer, or nil when all are in use. In that case
// Config.OnBuffer is called when one is free.
func (p *Port) Alloc() *TxBuffer {
	q := &p.pool
	q.mu.Lock()
	b := q.free
	if b != nil {
		q.free, b.next = b.next, nil
	} else {
		q.wanted = true
	}
	q.mu.Unlock()
	if b == nil {
		p.stats.TxNoBuffer.Add(1)
	}
	return b
}

// Free returns a buffer unsent.
func (p *Port) Free(b *TxBuffer) {
	if b.sent > 0 { // of a group frame
		p.tx.Lock()
		if p.groupFrame == b {
			p.groupFrame = nil
		}
		p.unlockTx()
	}
	b.Offload, b.end, b.sent = Offload{}, 0, 0
	q := &p.pool
	q.mu.Lock()
	b.next, q.free = q.free, b
	wanted := q.wanted
	q.wanted = false
	q.mu.Unlock()
	if wanted {
		p.cfg.OnBuffer()
	}
}
