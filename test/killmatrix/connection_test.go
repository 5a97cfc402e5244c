package killmatrix

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// connection is one between two peers.
type connection struct {
	client, server *remote
	kind           string // tcp or direct
	cid, sid, lid  int
	limit          int // ms, of each call; 0: none
	buffer         int // bytes of the sockets' buffers from client to server; 0: as the kernel has them
	caddr, saddr   netip.AddrPort
	accepted       bool
}

// listen has the server listen at an address.
func (c *connection) listen(addr string) error {
	a, err := c.server.ask(request{Op: "listen", ID: c.lid, Kind: c.kind, Addr: addr})
	if err != nil {
		return err
	}
	c.saddr, err = netip.ParseAddrPort(a.Addr)
	return err
}

// dial has the client connect. The server does not accept yet.
func (c *connection) dial(limit time.Duration) error {
	a, err := c.client.ask(request{Op: "dial", ID: c.cid, Kind: c.kind, Addr: c.saddr.String(), Dial: int(limit.Milliseconds()), MS: c.limit, Buffer: c.buffer})
	if err != nil {
		return err
	}
	c.caddr, err = netip.ParseAddrPort(a.Addr)
	return err
}

func (c *connection) accept() error {
	_, err := c.server.ask(request{Op: "accept", ID: c.sid, From: c.lid, MS: c.limit, Buffer: c.buffer})
	c.accepted = err == nil
	return err
}

// open makes the connection, and both ends read.
func (c *connection) open(addr string) error {
	if err := c.listen(addr); err != nil {
		return err
	}
	if err := c.dial(hangTime); err != nil {
		return err
	}
	if err := c.accept(); err != nil {
		return err
	}
	return errors.Join(c.read(c.client, false), c.read(c.server, false))
}

func (c *connection) id(r *remote) int {
	if r == c.client {
		return c.cid
	}
	return c.sid
}

func (c *connection) read(r *remote, hold bool) error {
	_, err := r.ask(request{Op: "read", ID: c.id(r), Hold: hold})
	return err
}

// write has one end write pieces of a size; 0: none.
func (c *connection) write(r *remote, size int, pause time.Duration) error {
	_, err := r.ask(request{Op: "pump", ID: c.id(r), Size: size, Pause: int(pause.Microseconds())})
	return err
}

func (c *connection) pump(size int, pause time.Duration) error {
	return errors.Join(c.write(c.client, size, pause), c.write(c.server, size, pause))
}

func (c *connection) half(r *remote) error {
	_, err := r.ask(request{Op: "finish", ID: c.id(r)})
	return err
}

func (c *connection) stat(r *remote) (stat, error) { return r.stat(c.id(r), false) }

// flows waits until bytes come at both ends.
func (c *connection) flows() error {
	for _, r := range []*remote{c.client, c.server} {
		first, err := c.stat(r)
		if err != nil {
			return err
		}
		if err := wait("bytes at the "+r.Name, func() (bool, error) {
			s, err := c.stat(r)
			if err == nil && s.RX.End != "" {
				err = fmt.Errorf("it has ended: %s", s.RX.End)
			}
			return s.RX.Bytes > first.RX.Bytes, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// entries are the lines of both ends in the statistics of direct sockets.
func (c *connection) entries() (client, server *entry, err error) {
	if client, err = c.client.entry(c.caddr, c.saddr); err == nil {
		server, err = c.server.entry(c.caddr, c.saddr)
	}
	return client, server, err
}

// becomesDirect waits for bytes that come directly at both ends.
func (c *connection) becomesDirect(limit time.Duration) (bool, error) {
	err := waitFor(limit, "direct", func() (bool, error) {
		a, b, err := c.entries()
		return a != nil && b != nil && a.n[receivedDirect] > 0 && b.n[receivedDirect] > 0, err
	})
	if errors.Is(err, errLate) {
		return false, nil
	}
	return err == nil, err
}

// finish ends both directions, checks that all that was sent has come, and closes.
func (c *connection) finish() error {
	if err := errors.Join(c.half(c.client), c.half(c.server)); err != nil {
		return err
	}
	var a, b stat
	err := wait("the end of both directions", func() (bool, error) {
		var err error
		if a, err = c.stat(c.client); err == nil {
			b, err = c.stat(c.server)
		}
		return a.RX.End != "" && a.TX.End != "" && b.RX.End != "" && b.TX.End != "", err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%w (client %+v, server %+v)", err, a, b)
	case a.RX.End != "end of file" || b.RX.End != "end of file" || a.TX.End != "finished" || b.TX.End != "finished":
		err = fmt.Errorf("it did not end in order: client %+v, server %+v", a, b)
	case a.TX.Bytes != b.RX.Bytes || b.TX.Bytes != a.RX.Bytes:
		err = fmt.Errorf("%d bytes to the server became %d, %d to the client %d", a.TX.Bytes, b.RX.Bytes, b.TX.Bytes, a.RX.Bytes)
	case a.RX.Bad+b.RX.Bad != 0:
		err = fmt.Errorf("%d bytes are not those that were sent", a.RX.Bad+b.RX.Bad)
	}
	return errors.Join(err, c.close(c.client), c.close(c.server))
}

// close closes what an end has of it.
func (c *connection) close(r *remote) error {
	var err error
	if r == c.client || c.accepted {
		_, err = r.ask(request{Op: "close", ID: c.id(r)})
	}
	if r == c.server {
		_, lerr := r.ask(request{Op: "unlisten", ID: c.lid})
		err = errors.Join(err, lerr)
	}
	return err
}

// connection is one between client and server that is to be made.
func (w *world) connection() connection {
	return connection{client: w.client, server: w.server, kind: w.path.kind, cid: w.nextID(), sid: w.nextID(), lid: w.nextID()}
}

// serve makes a new connection between client and server, which is to become direct on
// a path that has direct sockets, and ends it in order. It returns how long it took
// until there was one.
func (w *world) serve() (time.Duration, error) {
	began := time.Now()
	err := wait("a new connection", func() (bool, error) {
		c := w.connection()
		if err := c.open(w.address(w.serverNode())); err != nil {
			return false, err
		}
		if err := c.pump(64, time.Millisecond); err != nil {
			return false, err
		}
		if err := c.flows(); err != nil {
			return false, err
		}
		ok := true
		if w.path.direct {
			var err error
			if ok, err = c.becomesDirect(300 * time.Millisecond); err != nil {
				return false, err
			}
		}
		return ok, c.finish()
	})
	return time.Since(began), err
}
