package client

import (
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// Attached is a Client whose broker is in the same process, as the broker sees it.
type Attached struct{ c *Client }

// NewAttached makes a Client that is connected by Connected. end is called once, by its
// Close, and must not wait for it.
func NewAttached(cfg Config, end func()) (Attached, error) {
	c, err := newClient(cfg)
	if err != nil {
		return Attached{}, err
	}
	c.stop = end
	return Attached{c}, nil
}

// Client is what the program uses.
func (a Attached) Client() *Client { return a.c }

// Program is the name that the Client has for the statistics.
func (a Attached) Program() string { return a.c.cfg.Program }

// Connected has the Client ask w from now on. The page stays the broker's. Features of the broker
// are not passed: all of them are for UDP, which goes by a socket only.
func (a Attached) Connected(w Way, page *wire.Page, node uint16) {
	a.c.onConnected(w, page, wire.Message{Node: node})
}

// Handle handles a message of the broker. It takes the fds that it keeps.
func (a Attached) Handle(m wire.Message, fds rpc.Descriptors) error { return a.c.handleMessage(m, fds) }

// Ended says that the broker is gone, and lets Close return.
func (a Attached) Ended() {
	a.c.onDisconnected(ErrNoBroker)
	close(a.c.done)
}

// Drop gives back what a Client has that was never connected.
func (a Attached) Drop() { a.c.stats.Close() }
