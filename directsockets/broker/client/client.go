package client

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/internal/logger"
	"exnet/internal/shm"
)

// Config configures a Client. The zero value of a field means its default.
type Config struct {
	// Path is the broker's socket. Default: it is looked for where SPEC.md, 6, says.
	Path string
	// Program is shown in the statistics. Default: the name of the program.
	Program string
	// Connections is how many the statistics have room for. Default 4096.
	Connections int
	// KeepClosed has the statistics show closed connections until their room is needed, as
	// those of exn-run's library do. Default: they are gone at once.
	KeepClosed bool
	// In runs a function in the network namespace of the connections. Default: the process's
	// own.
	In func(func() error) error
	// Log is told about brokers that cannot be used. Default: nobody.
	Log logger.Logger
}

// Socket is the proof that a connection or a listener is the client's own.
type Socket struct {
	// Conn has the descriptor. It is borrowed for each call, but that of a listener
	// until its Announcement is closed. nil: the TCP stack is in the broker's own
	// process, and these are the addresses.
	Conn          syscall.RawConn
	Local, Remote netip.AddrPort
	// UDP says that the socket is of UDP. It has Conn. Of a sender, Local and Remote are the ends
	// of the flow; Local's address is that which the kernel would take.
	UDP bool
}

// Granted is a segment for a connection, with side 1's doorbell. Who gets it closes
// both.
type Granted struct {
	Key           wire.Key
	Nonce         wire.Nonce
	Segment, Bell int
	// Cookie is the number of the sender's socket (SO_COOKIE), as the broker has just seen it;
	// 0: TCP, or a broker that does not say. Another one may have the sender's address later.
	Cookie uint64
}

// Client is a process's connection to its namespace's broker. It connects by itself, and again
// after the broker has died; without a broker there are no listeners, and requests fail at once.
//
// Concurrency: all methods may be called from many goroutines. Functions that are
// given to it are called from its own goroutine, one at a time, and must not block.
type Client struct {
	cfg    Config
	stats  *connstats.Table
	habit  Habit
	page   atomic.Pointer[wire.Page] // nil: not connected
	stop   context.CancelFunc
	done   chan struct{} // closed when its goroutine has ended
	absent atomic.Uint32 // connstats.Why: why not
	// better is where root's broker would be, while this is connected to the user's own;
	// else "". It belongs to run.
	better string

	mu     sync.Mutex
	closed bool          // +checklocks:mu
	tried  chan struct{} // closed after the first attempt
	// err: why there is no broker.
	err  error  // +checklocks:mu
	node uint16 // +checklocks:mu
	// flows says that the broker knows FLOW.
	flows bool // +checklocks:mu
	// way: nil: not connected.
	way Way // +checklocks:mu
	// id: the last one used.
	id     uint32                          // +checklocks:mu
	claims map[uint32]func(Granted, error) // +checklocks:mu
	offers map[uint32]*offered             // +checklocks:mu
	// oldest: in the order of their time.
	oldest  []*offered                 // +checklocks:mu
	listens map[*Announcement]struct{} // +checklocks:mu
}

// Way is how a Client's messages get to the broker.
type Way interface {
	// Ask sends a message, with the socket as proof and other descriptors, which are
	// all borrowed. queue: it may wait; else ErrBusy.
	Ask(m wire.Message, s Socket, queue bool, fds ...int) error
	// Abort ends the connection to the broker soon, and waits for nothing.
	Abort()
}

// offered is an offer whose outcome somebody wants to know.
type offered struct {
	id      uint32
	nonce   wire.Nonce
	refused func(wire.Reason)
	until   time.Time
}

// Announcement is a listener that the broker knows of, even after the broker was started again.
type Announcement struct {
	c       *Client
	s       Socket
	refused func(wire.Reason)

	// These belong to the Client's lock.
	id    uint32
	again time.Duration // how long it waited last, when it was one too many
}

// Dial makes a Client, which connects in the background: Wait waits for that. The
// error says that there is no memory for its statistics.
func Dial(cfg Config) (*Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	shm.Go(func() { c.keepConnected(ctx) })
	return c, nil
}

func newClient(cfg Config) (*Client, error) {
	if cfg.Program == "" {
		cfg.Program = filepath.Base(os.Args[0])
	}
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	if cfg.Log == nil {
		cfg.Log = logger.Discard{}
	}
	stats, err := connstats.New(cfg.Connections, cfg.KeepClosed)
	if err != nil {
		return nil, err
	}
	return &Client{
		cfg: cfg, stats: stats, done: make(chan struct{}), tried: make(chan struct{}), err: ErrNoBroker,
		claims: make(map[uint32]func(Granted, error)), offers: make(map[uint32]*offered),
		listens: make(map[*Announcement]struct{}),
	}, nil
}

// Wait waits until the Client has looked for a broker, and returns nil if it has
// one, else why not.
func (c *Client) Wait(ctx context.Context) error {
	select {
	case <-c.tried:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Connected reports whether there is a broker.
func (c *Client) Connected() bool { return c.page.Load() != nil }

// Habit is that of the connections whose segments are offered through c.
func (c *Client) Habit() *Habit { return &c.habit }

// Absent returns why there is no broker.
func (c *Client) Absent() connstats.Why {
	if why := connstats.Why(c.absent.Load()); why != connstats.WhyNothing {
		return why
	}
	return connstats.WhyNoBroker
}

// Node is the ID of the broker's node.
func (c *Client) Node() uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Listener reports whether a direct listener at this TCP port can be reached.
func (c *Client) Listener(port uint16) bool {
	p := c.page.Load()
	return p != nil && p.Listener(port)
}

// Deep reports whether one of them is on another host, see Page.Deep.
func (c *Client) Deep(port uint16) bool {
	p := c.page.Load()
	return p != nil && p.Deep(port)
}

// Word is the word of a bucket of offers (Key.Bucket), see Page.Word; 0: no broker.
func (c *Client) Word(bucket uint32) uint32 {
	p := c.page.Load()
	if p == nil {
		return 0
	}
	return p.Word(bucket)
}

// Receiver reports whether a socket at this UDP port of the namespace takes flows.
func (c *Client) Receiver(port uint16) bool {
	p := c.page.Load()
	return p != nil && p.Receiver(port)
}

// FlowsOpen reports whether any UDP socket may claim a flow.
func (c *Client) FlowsOpen() bool {
	p := c.page.Load()
	return p != nil && p.FlowsOpen()
}

// MayHaveOffer reports whether a Claim for a connection of this bucket may find
// something: an offer is open, and something is new since the word that none is of,
// the one that was read before a Claim that found nothing (0: there was no such
// Claim). The word is for the next call.
func (c *Client) MayHaveOffer(bucket, none uint32) (word uint32, may bool) {
	word = c.Word(bucket)
	return word, word&0xffff != 0 && word != none
}

// Stats is the table of the Client's connections. It outlives brokers.
func (c *Client) Stats() *connstats.Table { return c.stats }

// nextIDLocked returns a new id.
// +checklocks:c.mu
func (c *Client) nextIDLocked() uint32 {
	c.id++
	return c.id
}

// Close ends the Client: its listeners and offers are gone. It waits for functions
// that are being called, and must not be called by one.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if !closed {
		c.stop()
	}
	<-c.done
	if !closed {
		c.stats.Close()
	}
	return nil
}

// onConnected is called when there is a broker, which has said welcome.
func (c *Client) onConnected(w Way, page *wire.Page, welcome wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.way, c.err = w, nil
	c.node, c.flows = welcome.Node, welcome.Features&wire.FeatureFlow != 0
	for a := range c.listens {
		c.announceLocked(a)
	}
	c.page.Store(page)
	c.triedLocked()
}

// onDisconnected is called when there is no broker (any more).
func (c *Client) onDisconnected(err error) {
	c.mu.Lock()
	page := c.page.Swap(nil)
	claims := c.claims
	c.claims = make(map[uint32]func(Granted, error))
	c.way, c.err = nil, err
	c.absent.Store(uint32(whyAbsent(err)))
	c.offers, c.oldest = make(map[uint32]*offered), nil
	c.triedLocked()
	c.mu.Unlock()
	if page != nil {
		page.Unmap()
	}
	for _, done := range claims {
		done(Granted{}, ErrNoBroker)
	}
}

// +checklocks:c.mu
func (c *Client) triedLocked() {
	select {
	case <-c.tried:
	default:
		close(c.tried)
	}
}
