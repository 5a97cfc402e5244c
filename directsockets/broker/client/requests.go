package client

import (
	"errors"
	"fmt"
	"net"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// Listen announces a listening socket until the Announcement is closed. refused is
// called if a broker does not take it; nil: nobody.
func (c *Client) Listen(s Socket, refused func(wire.Reason)) *Announcement {
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
	if err := c.way.Ask(wire.Message{Type: wire.Listen, ID: a.id}, a.s, true); err != nil && !errors.Is(err, net.ErrClosed) {
		c.cfg.Log.Info("direct sockets: listener not announced", "reason", err)
		c.way.Abort() // so that it is when the Client has connected again
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
		_ = c.way.Ask(wire.Message{Type: wire.Unlisten, ID: a.id}, Socket{}, true) // or it is dead
	}
}

// Offer offers a segment and side 1's doorbell, which it borrows, for a connection whose side 0
// this is. refused is called when the broker does not want it, or nobody has claimed it in time,
// never after a GRANT; nil: nobody. If the broker dies, refused is not called: the doorbell ends.
// ErrNoBroker, ErrBusy: there is no offer.
func (c *Client) Offer(s Socket, nonce wire.Nonce, segment, bell int, refused func(wire.Reason)) error {
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
	if err := c.way.Ask(wire.Message{Type: wire.Offer, ID: id, Nonce: nonce}, s, false, segment, bell); err != nil {
		return err
	}
	if refused != nil {
		o := &offered{id: id, nonce: nonce, refused: refused, until: now.Add(2 * wire.HandTime)}
		c.offers[id] = o
		c.oldest = append(c.oldest, o)
	}
	return nil
}

// Withdraw ends an offer. refused is not called any more, unless it is just being.
func (c *Client) Withdraw(nonce wire.Nonce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(nonce)
	if c.way != nil {
		_ = c.way.Ask(wire.Message{Type: wire.Withdraw, ID: c.nextIDLocked(), Nonce: nonce}, Socket{}, true) // or it is dead
	}
}

// Forget is for an offer that was claimed: nobody is told about it any more.
func (c *Client) Forget(nonce wire.Nonce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(nonce)
}

// +checklocks:c.mu
func (c *Client) forgetLocked(nonce wire.Nonce) {
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
	if err := c.way.Ask(wire.Message{Type: wire.Claim, ID: id, KnowsFlow: s.UDP && c.flows}, s, false); err != nil {
		return err
	}
	c.claims[id] = done
	return nil
}

// +checklocks:c.mu
func (c *Client) noWayLocked() error {
	if c.closed {
		return wire.ErrClosed
	}
	return ErrNoBroker
}

// handleMessage handles a message of the broker. It takes the fds that it keeps.
func (c *Client) handleMessage(m wire.Message, fds rpc.Descriptors) error {
	switch m.Type {
	case wire.Grant, wire.Flow:
		if done := c.onClaimed(m.ID); done != nil {
			done(Granted{Key: wire.Key{Client: m.Client, Server: m.Server}, Nonce: m.Nonce, Segment: fds.Take(0), Bell: fds.Take(1), Cookie: m.Cookie}, nil)
		}
	case wire.None:
		if done := c.onClaimed(m.ID); done != nil {
			done(Granted{}, ErrNone)
		}
	case wire.Refused:
		if refused := c.onRefusal(m.ID, m.Reason); refused != nil {
			refused(m.Reason)
		}
	default:
		return fmt.Errorf("%w: %v is not for a client", wire.ErrRule, m.Type)
	}
	return nil
}

func (c *Client) onClaimed(id uint32) func(Granted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.claims[id]
	delete(c.claims, id)
	return done
}

func (c *Client) onRefusal(id uint32, why wire.Reason) func(wire.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.offers[id]; o != nil {
		c.forgetLocked(o.nonce)
		return o.refused
	}
	for a := range c.listens {
		if a.id == id {
			if why == wire.TooMany {
				c.repeatLocked(a)
			}
			return a.refused
		}
	}
	return nil
}

// Times until a listener is announced again of which there was one too many: others may have gone.
const (
	firstAgain = time.Second
	lastAgain  = time.Minute
)

// repeatLocked has a listener be announced again after a time.
//
// +checklocks:c.mu
func (c *Client) repeatLocked(a *Announcement) {
	a.again = min(max(2*a.again, firstAgain), lastAgain)
	id := a.id
	time.AfterFunc(a.again, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, there := c.listens[a]; there && a.id == id && !c.closed {
			c.announceLocked(a)
		}
	})
}
