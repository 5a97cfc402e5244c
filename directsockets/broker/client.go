package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ClientConfig configures a Client. The zero value of a field means its default.
type ClientConfig struct {
	// Path is the broker's socket. Default: it is looked for where SPEC.md, 6, says.
	Path string
	// Program is shown in the statistics. Default: the name of the program.
	Program string
	// Connections is how many the statistics have room for. Default 4096.
	Connections int
	// In runs a function in the network namespace of the connections. Default: where
	// the process is.
	In func(func() error) error
	// Log is told of brokers that cannot be used. Default: nobody.
	Log *slog.Logger
}

// Socket is the proof that a connection or a listener is the client's own.
type Socket struct {
	// Conn has the descriptor. It is borrowed for each call, but that of a listener
	// until its Announcement is closed. nil: the TCP stack is in the broker's own
	// process, and these are the addresses.
	Conn          syscall.RawConn
	Local, Remote netip.AddrPort
}

// Granted is a segment for a connection, with side 1's doorbell. Who gets it closes
// both.
type Granted struct {
	Key           Key
	Nonce         Nonce
	Segment, Bell int
}

// Client is what a process has of its namespace's broker. It connects, and
// connects again when the broker has died, by itself; without a broker there are
// no listeners, and what is asked fails at once.
//
// Concurrency: all methods may be called from many goroutines. Functions that are
// given to it are called from its own goroutine, one at a time, and must not block.
type Client struct {
	cfg   ClientConfig
	stats *Stats
	page  atomic.Pointer[Page] // nil: not connected
	stop  context.CancelFunc
	done  chan struct{} // closed when its goroutine has ended

	mu      sync.Mutex
	closed  bool                            // +checklocks:mu
	tried   chan struct{}                   // closed after the first attempt
	err     error                           // +checklocks:mu; why there is no broker
	node    uint16                          // +checklocks:mu
	way     way                             // +checklocks:mu; nil: not connected
	id      uint32                          // +checklocks:mu; the last one used
	claims  map[uint32]func(Granted, error) // +checklocks:mu
	offers  map[uint32]*offered             // +checklocks:mu
	oldest  []*offered                      // +checklocks:mu; in the order of their time
	listens map[*Announcement]struct{}      // +checklocks:mu
}

// way is how a Client's messages get to the broker.
type way interface {
	// ask sends a message, with the socket as proof and other descriptors, which are
	// all borrowed. queue: it may wait; else ErrBusy.
	ask(m Message, s Socket, queue bool, fds ...int) error
	close()
}

// offered is an offer whose outcome somebody wants to know.
type offered struct {
	id      uint32
	nonce   Nonce
	refused func(Reason)
	until   time.Time
}

// Announcement is a listener that the broker knows of, now and after it was
// started again.
type Announcement struct {
	c       *Client
	s       Socket
	refused func(Reason)
	id      uint32 // belongs to the Client's lock
}

// Dial makes a Client, which connects in the background: Wait waits for that. The
// error says that there is no memory for its statistics.
func Dial(cfg ClientConfig) (*Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.run(ctx)
	return c, nil
}

func newClient(cfg ClientConfig) (*Client, error) {
	if cfg.Program == "" {
		cfg.Program = filepath.Base(os.Args[0])
	}
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	stats, err := newStats(cfg.Connections)
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

// Word is the word of a bucket of offers (Key.Bucket), see Page.Word; 0: no broker.
func (c *Client) Word(bucket uint32) uint32 {
	p := c.page.Load()
	if p == nil {
		return 0
	}
	return p.Word(bucket)
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
func (c *Client) Stats() *Stats { return c.stats }

// nextID returns a new id. +checklocks:c.mu
func (c *Client) nextIDLocked() uint32 {
	c.id++
	return c.id
}

// Listen announces a listening socket until the Announcement is closed. refused is
// called if a broker does not take it; nil: nobody.
func (c *Client) Listen(s Socket, refused func(Reason)) *Announcement {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &Announcement{c: c, s: s, refused: refused}
	if c.closed {
		return a
	}
	c.listens[a] = struct{}{}
	c.announceLocked(a)
	return a
}

// announceLocked tells the broker of a listener, if there is one.
//
// +checklocks:c.mu
func (c *Client) announceLocked(a *Announcement) {
	if c.way == nil {
		return
	}
	a.id = c.nextIDLocked()
	if err := c.way.ask(Message{Type: Listen, ID: a.id}, a.s, true); err != nil {
		c.cfg.Log.Info("direct sockets: listener not announced", "reason", err)
	}
}

// Close ends the announcement. Close it before the socket. It is idempotent.
func (a *Announcement) Close() {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.listens[a]; !there {
		return
	}
	delete(c.listens, a)
	if c.way != nil {
		_ = c.way.ask(Message{Type: Unlisten, ID: a.id}, Socket{}, true) // or it is dead
	}
}

// Offer offers a segment and side 1's doorbell, which it borrows, for a connection
// whose side 0 this is. refused is called when the broker does not want it, or
// nobody has claimed it in time, never after a GRANT; nil: nobody. When the broker
// dies nobody is told: the doorbell comes to its end. ErrNoBroker, ErrBusy: there
// is no offer.
func (c *Client) Offer(s Socket, nonce Nonce, segment, bell int, refused func(Reason)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.way == nil {
		return c.noWayLocked()
	}
	now := time.Now()
	for len(c.oldest) > 0 && now.After(c.oldest[0].until) {
		delete(c.offers, c.oldest[0].id)
		c.oldest = c.oldest[1:]
	}
	id := c.nextIDLocked()
	if err := c.way.ask(Message{Type: Offer, ID: id, Nonce: nonce}, s, false, segment, bell); err != nil {
		return err
	}
	if refused != nil {
		o := &offered{id: id, nonce: nonce, refused: refused, until: now.Add(2 * handTime)}
		c.offers[id] = o
		c.oldest = append(c.oldest, o)
	}
	return nil
}

// Withdraw ends an offer. refused is not called any more, unless it is just being.
func (c *Client) Withdraw(nonce Nonce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(nonce)
	if c.way != nil {
		_ = c.way.ask(Message{Type: Withdraw, ID: c.nextIDLocked(), Nonce: nonce}, Socket{}, true) // or it is dead
	}
}

// Forget is for an offer that was claimed: nobody is told of it any more.
func (c *Client) Forget(nonce Nonce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(nonce)
}

// +checklocks:c.mu
func (c *Client) forgetLocked(nonce Nonce) {
	for i, o := range c.oldest {
		if o.nonce == nonce {
			delete(c.offers, o.id)
			c.oldest = append(c.oldest[:i:i], c.oldest[i+1:]...)
			return
		}
	}
}

// Claim asks for the segment of a connection whose side 1 this is. done is called
// once, with what was granted, or with ErrNone or ErrNoBroker. If Claim returns an error,
// done is not called.
func (c *Client) Claim(s Socket, done func(Granted, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.way == nil {
		return c.noWayLocked()
	}
	id := c.nextIDLocked()
	if err := c.way.ask(Message{Type: Claim, ID: id}, s, false); err != nil {
		return err
	}
	c.claims[id] = done
	return nil
}

// +checklocks:c.mu
func (c *Client) noWayLocked() error {
	if c.closed {
		return ErrClosed
	}
	return ErrNoBroker
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
		c.stats.seg.Retire()
	}
	return nil
}

// handle does what a message of the broker says. It takes of fds what it keeps.
func (c *Client) handle(m Message, fds descriptors) error {
	switch m.Type {
	case Grant:
		if done := c.claimed(m.ID); done != nil {
			done(Granted{Key: Key{Client: m.Client, Server: m.Server}, Nonce: m.Nonce, Segment: fds.take(0), Bell: fds.take(1)}, nil)
		}
	case None:
		if done := c.claimed(m.ID); done != nil {
			done(Granted{}, ErrNone)
		}
	case Refused:
		if refused := c.refusal(m.ID); refused != nil {
			refused(m.Reason)
		}
	default:
		return fmt.Errorf("%w: %v is not for a client", ErrRule, m.Type)
	}
	return nil
}

func (c *Client) claimed(id uint32) func(Granted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.claims[id]
	delete(c.claims, id)
	return done
}

func (c *Client) refusal(id uint32) func(Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.offers[id]; o != nil {
		c.forgetLocked(o.nonce)
		return o.refused
	}
	for a := range c.listens {
		if a.id == id {
			return a.refused
		}
	}
	return nil
}

// connected is called when there is a broker.
func (c *Client) connected(w way, page *Page, node uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.way, c.node, c.err = w, node, nil
	for a := range c.listens {
		c.announceLocked(a)
	}
	c.page.Store(page)
	c.triedLocked()
}

// disconnected is called when there is none (any more).
func (c *Client) disconnected(err error) {
	c.mu.Lock()
	page := c.page.Swap(nil)
	claims := c.claims
	c.claims = make(map[uint32]func(Granted, error))
	c.way, c.err = nil, err
	c.offers, c.oldest = make(map[uint32]*offered), nil
	c.triedLocked()
	c.mu.Unlock()
	if page != nil && page.open == nil {
		page.seg.Retire()
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

// errUntrusted says that whoever has the socket is not to be trusted.
var errUntrusted = errors.New("its owner is neither root nor this user")
