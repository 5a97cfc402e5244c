package broker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// replies is where the messages to a client go: an outbox, or in the broker's own
// process a mailbox of its Client's. post borrows the descriptors.
type replies interface {
	post(b []byte, fds ...int) error
	// abort ends the connection soon, and waits for nothing.
	abort()
	close()
}

// session is a client, as the broker has it.
//
// Concurrency: what the client asks is answered by one goroutine; the tables in it
// belong to the Server's lock.
type session struct {
	s       *Server
	out     replies
	pid     int // in the broker's PID namespace
	uid     uint32
	program string
	since   time.Time
	stats   int // descriptor of its statistics; -1: it is in this process

	table     *Stats               // its statistics, in this process
	user      *usage               // nil: not admitted
	listeners map[uint32]*listener // by the id of their message
	offers    map[Nonce]*offer
}

// run answers the client until its connection ends.
func (c *session) run(conn *net.UnixConn) error {
	if err := c.check(conn); err != nil {
		return err
	}
	if err := c.s.admit(c); err != nil {
		return err
	}
	in, err := newInbound(conn, maxLen)
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	for greeted := false; ; {
		b, fds, err := in.next()
		if err != nil && !errors.Is(err, errNoDescriptors) {
			fds.close()
			return err
		}
		var m Message
		lost := err != nil
		if lost {
			c.s.lost()
		}
		if err = m.UnmarshalBinary(b); err == nil {
			switch {
			case !lost && len(fds) != m.Type.Descriptors():
				err = fmt.Errorf("%w: %v with %d descriptors", ErrRule, m.Type, len(fds))
			case (m.Type == Hello) == greeted:
				err = fmt.Errorf("%w: %v, HELLO being due once, first", ErrRule, m.Type)
			case !greeted:
				if greeted = true; lost {
					err = errNoDescriptors
				} else if err = c.hello(m, fds); err == nil {
					err = conn.SetReadDeadline(time.Time{})
				}
			default:
				c.pace()
				err = c.answer(m, fds, lost)
			}
		}
		fds.close()
		if err != nil {
			return err
		}
	}
}

// pace waits if the client's user asks too much. Root may: the processor is its own.
func (c *session) pace() {
	if c.uid == 0 {
		return
	}
	if wait := c.user.pace.wait(int64(time.Since(epoch))); wait > 0 {
		time.Sleep(wait)
	}
}

// check finds out who has connected.
func (c *session) check(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cookie uint64
	var err1, err2 error
	if err := raw.Control(func(fd uintptr) {
		cred, err1 = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		cookie, err2 = netnsCookie(int(fd))
	}); err != nil {
		return err
	}
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.pid, c.uid = int(cred.Pid), cred.Uid
	if cookie != c.s.cookie {
		return fmt.Errorf("%w: it is in another network namespace", ErrRule)
	}
	return nil
}

func (c *session) hello(m Message, fds descriptors) error {
	if err := checkStats(fds[0]); err != nil {
		return err
	}
	c.s.mu.Lock() // Connections may look
	c.program, c.stats = m.Program, fds.take(0)
	c.s.mu.Unlock()
	return c.reply(Message{Type: Welcome, ID: m.ID, Node: c.s.cfg.Node}, c.s.page.seg.Fd())
}

// answer does what one message asks. lost: its descriptors could not be received.
func (c *session) answer(m Message, fds descriptors, lost bool) error {
	switch m.Type {
	case Listen:
		if lost {
			return c.refuse(m.ID, TooMany)
		}
		b, err := c.listener(m, fds)
		if err != nil {
			return c.refuse(m.ID, NotOwner)
		}
		return c.listen(m.ID, b)
	case Unlisten:
		c.unlisten(m.ID)
	case Offer:
		if lost {
			return c.refuse(m.ID, TooMany)
		}
		zone, err := c.connection(m.Client, m.Server, m.Interface, fds)
		if err != nil {
			return c.refuse(m.ID, NotOwner)
		}
		return c.offer(m, Key{Client: m.Client, Server: m.Server, Zone: zone}, fds, 1)
	case Withdraw:
		c.s.withdraw(c, m.Nonce)
	case Claim:
		if lost {
			return c.reply(Message{Type: None, ID: m.ID})
		}
		zone, err := c.connection(m.Server, m.Client, m.Interface, fds)
		if err != nil { // the connection may have ended meanwhile
			return c.reply(Message{Type: None, ID: m.ID})
		}
		return c.claim(m.ID, Key{Client: m.Client, Server: m.Server, Zone: zone})
	default:
		return fmt.Errorf("%w: %v is not for a broker", ErrRule, m.Type)
	}
	return nil
}

// connection checks that the client has shown the connection from local to remote, and
// returns its zone. It closes the descriptor that was shown.
func (c *session) connection(local, remote netip.AddrPort, ifindex uint32, fds descriptors) (zone uint32, err error) {
	p, err := proofOf(fds[0], c.s.diag.dev)
	fds.drop(0)
	if err != nil {
		return 0, err
	}
	return c.s.diag.connected(p, local, remote, ifindex)
}

// listener returns what LISTEN announces: a listening socket or, for one that is closed,
// the address at which it accepted the connection that is shown.
func (c *session) listener(m Message, fds descriptors) (bound, error) {
	if m.Client.Port() != 0 {
		_, err := c.connection(m.Server, m.Client, m.Interface, fds)
		return bound{addr: m.Server.Addr(), port: m.Server.Port()}, err
	}
	p, err := proofOf(fds[0], c.s.diag.dev)
	fds.drop(0)
	if err != nil {
		return bound{}, err
	}
	return c.s.diag.listening(p, m.Server.Port())
}

// listen puts a listener into the tables.
func (c *session) listen(id uint32, b bound) error {
	ok, err := c.s.addListener(c, id, b)
	if err == nil && !ok {
		return c.refuse(id, TooMany)
	}
	return err
}

func (c *session) unlisten(id uint32) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if l := c.listeners[id]; l != nil {
		delete(c.listeners, id)
		c.s.removeListenerLocked(l)
	}
}

// offer takes the segment and the doorbell, fds[at] and the next, unless it
// refuses them.
func (c *session) offer(m Message, key Key, fds descriptors, at int) error {
	if checkSegment(fds[at], key, m.Nonce) != nil || checkBell(fds[at+1]) != nil {
		c.s.count.BadSegments.Add(1)
		return c.refuse(m.ID, BadSegment)
	}
	o := &offer{key: key, nonce: m.Nonce, from: c, id: m.ID, seg: fds.take(at), bell: fds.take(at + 1)}
	if why := c.s.addOffer(o); why != 0 {
		c.s.count.OffersRefused.Add(1)
		o.close()
		return c.refuse(m.ID, why)
	}
	return nil
}

// claim hands the segment over that waits for a connection.
func (c *session) claim(id uint32, key Key) error {
	o := c.s.takeOffer(key)
	if o == nil {
		return c.reply(Message{Type: None, ID: id})
	}
	defer o.close()
	return c.reply(Message{Type: Grant, ID: id, Nonce: o.nonce, Client: key.Client, Server: key.Server}, o.seg, o.bell)
}

func (c *session) refuse(id uint32, why Reason) error {
	if why == NotOwner {
		c.s.count.NotOwners.Add(1)
	}
	return c.reply(Message{Type: Refused, ID: id, Reason: why})
}

// reply sends a message to the client. An error is its end.
func (c *session) reply(m Message, fds ...int) error {
	b, err := m.AppendBinary(make([]byte, 0, maxLen))
	if err != nil {
		return err
	}
	return c.out.post(b, fds...)
}

// end removes the client.
func (c *session) end() {
	c.s.dismiss(c) // nobody looks at its statistics any more
	if c.stats >= 0 {
		_ = unix.Close(c.stats)
		c.stats = -1
	}
}
