package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// replies takes the messages to a client: an outbox or, in the broker's own process, a mailbox of
// the Client. post borrows the descriptors.
type replies interface {
	Post(b []byte, fds ...int) error
	// Abort ends the connection soon, and waits for nothing.
	Abort()
}

// session is a client, as the broker has it.
//
// Concurrency: what the client asks is answered by one goroutine; the tables in it
// belong to the Server's lock.
type session struct {
	s       *Server
	out     replies
	shut    rpc.Connection // nil: there is none, or it is closed otherwise
	pid     int            // in the broker's PID namespace
	uid     uint32
	account caller.Account // whose limits apply: the user who has started it or its container
	home    caller.Home    // and those of its container
	owner   owner          // both, once it was admitted
	version uint8          // of the messages, once it was greeted; 0: the oldest
	greeted atomic.Bool    // WELCOME was sent, or is not waited for
	program string
	since   time.Time
	stats   int             // descriptor of its statistics; -1: it is in this process
	conn    syscall.RawConn // nil: it is in this process

	table     *connstats.Table     // its statistics, in this process
	user      *usage               // nil: not admitted
	listeners map[uint32]*listener // by the id of their message
	receivers map[uint32]*receiver // the same
	offers    map[wire.Nonce]*offer
}

// answerClient answers the client until its connection ends.
func (c *session) answerClient(conn *net.UnixConn) error {
	var err error
	if c.conn, err = conn.SyscallConn(); err != nil {
		return err
	}
	if err := c.identifyClient(); err != nil {
		return err
	}
	if err := c.s.addSession(c); err != nil {
		return err
	}
	if err := c.payCost(connectCost); err != nil {
		return err
	}
	in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	for greeted := false; ; {
		b, fds, err := in.Next()
		if err != nil && !errors.Is(err, rpc.ErrNoDescriptors) {
			c.user.trash.Throw(fds...)
			return err
		}
		var m wire.Message
		lost := err != nil
		if lost {
			c.s.logLost()
		}
		if err = m.UnmarshalBinary(b); err == nil {
			switch {
			case !lost && len(fds) != m.Type.Descriptors():
				err = fmt.Errorf("%w: %v with %d descriptors", wire.ErrRule, m.Type, len(fds))
			case (m.Type == wire.Hello) == greeted:
				err = fmt.Errorf("%w: got %v, want HELLO once, as the first message", wire.ErrRule, m.Type)
			case greeted && m.Version != c.version:
				err = fmt.Errorf("%w: %v of version %d, agreed was %d", wire.ErrRule, m.Type, m.Version, c.version)
			case !greeted:
				greeted = true
				if c.version, _ = m.Agreed(); lost { // there is one, or it was no message
					err = errors.Join(rpc.ErrNoDescriptors, c.sendRefusal(m.ID, wire.TooMany))
				} else if err = c.answerHello(m, fds); err == nil {
					err = conn.SetReadDeadline(time.Time{})
				}
			default:
				if m.Type != wire.Listen { // which is charged what it costs
					err = c.payCost(paceCost)
				}
				if err == nil {
					err = c.handleMessage(m, fds, lost)
				}
			}
		}
		c.user.trash.Throw(fds...)
		if err != nil {
			return err
		}
	}
}

// isUnlimited says that the client is root outside of containers, whose limits are the process's.
func (c *session) isUnlimited() bool {
	return c.account.Unlimited() && c.home.Group == "" && !c.s.cfg.Limited
}

// payCost charges a cost, and waits if the client's owner asks too much. Root may ask as much as it
// likes.
func (c *session) payCost(cost time.Duration) error {
	if c.isUnlimited() {
		return nil
	}
	return c.sleepFor(c.user.levels.chargeTime(monotonicTime(), cost))
}

// sleepFor waits for d. io.EOF: the client has hung up after HELLO. Nothing that it has sent since
// would last, and nobody reads the answers, so its remaining messages are not answered.
func (c *session) sleepFor(d time.Duration) error {
	const look = time.Second
	for ; d > 0; d -= look {
		if c.conn != nil && c.stats >= 0 && hungUp(c.conn) {
			return io.EOF
		}
		t := time.NewTimer(min(d, look))
		select {
		case <-t.C:
		case <-c.s.ctx.Done():
			t.Stop()
			return wire.ErrClosed
		}
	}
	return nil
}

// chargeTime charges processor time that the client's messages take beyond what is charged for
// each.
func (c *session) chargeTime(spent time.Duration) {
	if spent > 0 && !c.isUnlimited() {
		c.user.levels.chargeTime(monotonicTime(), paceShare*spent)
	}
}

// hungUp reports whether the peer of a socket has closed it.
func hungUp(conn syscall.RawConn) (gone bool) {
	_ = conn.Control(func(fd uintptr) { // else it is closed here
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, 0)
		gone = err == nil && n > 0 // POLLHUP, which is not asked for
	})
	return gone
}

// identifyClient finds out who has connected.
func (c *session) identifyClient() error {
	var who caller.Caller
	var home caller.Home
	var cookie uint64
	var err1, err2 error
	if err := c.conn.Control(func(fd uintptr) {
		who, err1 = caller.OfFd(int(fd))
		home = caller.HomeOf(int(fd), who.PID)
		cookie, err2 = netnsCookie(int(fd))
	}); err != nil {
		return err
	}
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.pid, c.uid, c.account, c.home = who.PID, who.UID, who.Account, home
	switch { // root in a container has the IDs of all users, and a user those of subuid(5)
	case home.User != 0 && (c.account != caller.Root || home.Container != ""):
		c.account = caller.Account(home.User)
	case home.Container != "":
		c.account = caller.Guest
	}
	if cookie != c.s.cookie {
		return fmt.Errorf("%w: socket of another network namespace", wire.ErrRule)
	}
	return nil
}

func (c *session) answerHello(m wire.Message, fds rpc.Descriptors) error {
	if err := connstats.Check(fds[0]); err != nil {
		return err
	}
	c.s.mu.Lock() // Connections may look
	c.program, c.stats = m.Program, fds.Take(0)
	t, err := c.s.tableOf(c)
	c.s.mu.Unlock()
	if err == nil { // else it has no descriptors
		budget := connstats.MaxEntries
		c.s.scanning.Lock()                         // else it may say what Switched has changed meanwhile
		c.s.switchTable(t, &budget, newReturning()) // as the broker before this one may have said otherwise
		c.s.scanning.Unlock()
		_ = unix.Close(t.fd)
	}
	c.greeted.Store(true)
	return c.sendReply(wire.Message{Type: wire.Welcome, ID: m.ID, Node: c.s.cfg.Node, Features: wire.FeatureUDP | wire.FeatureFlow}, c.s.page.Fd())
}

// handleMessage does what one message asks. lost: its descriptors could not be received.
func (c *session) handleMessage(m wire.Message, fds rpc.Descriptors, lost bool) error {
	switch m.Type {
	case wire.Listen, wire.Offer, wire.Claim:
		if m.UDP && !lost {
			return c.answerUDP(m, fds)
		}
	}
	switch m.Type {
	case wire.Listen:
		if lost {
			return c.sendRefusal(m.ID, wire.TooMany)
		}
		b, err := c.checkListener(m, fds)
		if err != nil {
			return c.sendRefusal(m.ID, reasonOf(err))
		}
		return c.addListener(m.ID, b)
	case wire.Unlisten:
		c.removeListener(m.ID)
	case wire.Offer:
		if lost {
			return c.sendRefusal(m.ID, wire.TooMany)
		}
		of, err := c.checkConnection(m.Client, m.Server, m.Interface, fds)
		if err != nil {
			return c.sendRefusal(m.ID, reasonOf(err))
		}
		return c.takeOffer(m, &offer{key: wire.Key{Client: m.Client, Server: m.Server, Zone: of.zone}, socket: of}, fds, 1)
	case wire.Withdraw:
		c.s.withdrawOffer(c, m.Nonce)
	case wire.Claim:
		if lost {
			return c.sendReply(wire.Message{Type: wire.None, ID: m.ID})
		}
		of, err := c.checkConnection(m.Server, m.Client, m.Interface, fds)
		if err != nil { // the connection may have ended meanwhile
			return c.sendReply(wire.Message{Type: wire.None, ID: m.ID})
		}
		return c.handOverSegment(m.ID, wire.Key{Client: m.Client, Server: m.Server, Zone: of.zone}, of)
	default:
		return fmt.Errorf("%w: %v is not for a broker", wire.ErrRule, m.Type)
	}
	return nil
}

// answerUDP does what a message about a UDP socket asks.
func (c *session) answerUDP(m wire.Message, fds rpc.Descriptors) error {
	p, err := proofOf(fds[0], c.s.diag.dev)
	if err == nil { // else it may take long to close
		fds.Drop(0)
	}
	switch {
	case m.Type == wire.Listen && err == nil:
		return c.announceUDP(m, p)
	case m.Type == wire.Claim && err == nil:
		return c.claimUDP(m, p)
	case m.Type == wire.Claim:
		return c.sendReply(wire.Message{Type: wire.None, ID: m.ID})
	case m.Type == wire.Offer && err == nil:
		var f flowEnds
		if f, err = c.flowOffer(m, p); err == nil {
			return c.takeOffer(m, &offer{key: wire.Key{Client: m.Client, Server: m.Server}, flow: &f}, fds, 1)
		}
	}
	return c.sendRefusal(m.ID, reasonOf(err))
}

// reasonOf is the reason for a socket that was not found: it is another one, or the kernel did not
// say.
func reasonOf(err error) wire.Reason {
	if errors.Is(err, errSocket) {
		return wire.NotOwner
	}
	return wire.TooMany
}

// checkConnection checks that the client has shown the socket of the connection from local to
// remote. It closes the descriptor that was shown, if it is a socket's.
func (c *session) checkConnection(local, remote netip.AddrPort, ifindex uint32, fds rpc.Descriptors) (of shadow, err error) {
	p, err := proofOf(fds[0], c.s.diag.dev)
	if err != nil {
		return of, err
	}
	fds.Drop(0)
	return c.s.diag.findConnected(p, local, remote, ifindex)
}

// checkListener returns what LISTEN announces: a listening socket or, for one that is closed,
// the address at which it accepted the connection that is shown.
func (c *session) checkListener(m wire.Message, fds rpc.Descriptors) (bound, error) {
	if m.Client.Port() != 0 {
		if err := c.payCost(paceCost); err != nil {
			return bound{}, err
		}
		_, err := c.checkConnection(m.Server, m.Client, m.Interface, fds)
		return bound{addr: m.Server.Addr(), port: m.Server.Port()}, err
	}
	p, err := proofOf(fds[0], c.s.diag.dev)
	if err != nil {
		return bound{}, err
	}
	fds.Drop(0)
	if c.isUnlimited() {
		b, _, err := c.s.diag.findListening(p, m.Server.Port())
		return b, err
	}
	// How long the kernel looks depends on what listens there.
	u := c.user
	charged, wait := u.listen.chargeBefore(u.levels, monotonicTime())
	if err := c.sleepFor(wait); err != nil {
		return bound{}, err
	}
	b, spent, err := c.s.diag.findListening(p, m.Server.Port())
	u.listen.chargeAfter(u.levels, monotonicTime(), charged, spent)
	return b, err
}

// addListener puts a listener into the tables.
func (c *session) addListener(id uint32, b bound) error {
	ok, err := c.s.addListener(c, id, b)
	if err == nil && !ok {
		return c.sendRefusal(id, wire.TooMany)
	}
	return err
}

func (c *session) removeListener(id uint32) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	spent := beginMeasure()
	if l := c.listeners[id]; l != nil {
		delete(c.listeners, id)
		c.s.removeListenerLocked(l)
	}
	if r := c.receivers[id]; r != nil {
		delete(c.receivers, id)
		c.s.removeReceiverLocked(r)
	}
	c.chargeTime(spent() - paceCost/paceShare) // that is charged already
}

// takeOffer takes the segment and the doorbell of o, fds[at] and the next, unless it
// refuses them. o.of is the zero shadow in a process that is taken at its word.
func (c *session) takeOffer(m wire.Message, o *offer, fds rpc.Descriptors, at int) error {
	magic := segMagic
	if o.flow != nil {
		magic = flowMagic
	}
	if checkSegment(fds[at], magic, o.key, m.Nonce) != nil || checkBell(fds[at+1]) != nil {
		c.s.count.BadSegments.Add(1)
		return c.sendRefusal(m.ID, wire.BadSegment)
	}
	o.ends, o.nonce, o.from, o.id, o.seg, o.bell = o.key, m.Nonce, c, m.ID, fds.Take(at), fds.Take(at+1)
	if why := c.s.addOffer(o); why != 0 {
		c.s.count.OffersRefused.Add(1)
		defer o.close() // the client knows why before its doorbell ends
		return c.sendRefusal(m.ID, why)
	}
	return nil
}

// handOverSegment hands over the segment that waits for a connection; of is the server's socket.
func (c *session) handOverSegment(id uint32, key wire.Key, of shadow) error {
	standing := c.s.standingOffer(key, of)
	if standing != nil && !c.s.mayClaim(c, key, standing) {
		c.s.mu.Lock()
		c.s.endOfferLocked(standing, wire.SwitchedOff)
		c.s.mu.Unlock()
		standing = nil
	}
	o := c.s.takeOffer(c, key, standing)
	if o == nil {
		return c.sendReply(wire.Message{Type: wire.None, ID: id})
	}
	// Who has read the reply may have closed them already: then this is the last.
	defer func() { c.user.closeQuickly(rpc.Descriptors{o.seg, o.bell}) }()
	return c.sendReply(wire.Message{Type: wire.Grant, ID: id, Nonce: o.nonce, Client: o.ends.Client, Server: o.ends.Server}, o.seg, o.bell)
}

func (c *session) sendRefusal(id uint32, why wire.Reason) error {
	if why == wire.NotOwner {
		c.s.count.NotOwners.Add(1)
	}
	return c.sendReply(wire.Message{Type: wire.Refused, ID: id, Reason: why})
}

// endByBroker ends the connection because the broker ends.
func (c *session) endByBroker() {
	c.turnAway(wire.Expired)
	c.out.Abort()
}

// turnAway tells a client why there will be no WELCOME. One that is hung up on in place of WELCOME
// takes the broker for one of another version (SPEC 6).
func (c *session) turnAway(why wire.Reason) {
	if c.greeted.Load() {
		return
	}
	postRefused(c.out, why)
}

// postRefused sends REFUSED in place of WELCOME.
func postRefused(out replies, why wire.Reason) {
	m := wire.Message{Type: wire.Refused, Reason: why}
	if b, err := m.AppendBinary(make([]byte, 0, wire.MaxLen)); err == nil {
		_ = out.Post(b) // the client may be gone
	}
}

// sendReply sends a message to the client. An error is its end.
func (c *session) sendReply(m wire.Message, fds ...int) error {
	m.Version = c.version
	b, err := m.AppendBinary(make([]byte, 0, wire.MaxLen))
	if err != nil {
		return err
	}
	return c.out.Post(b, fds...)
}

// removeClient removes the client.
func (c *session) removeClient() {
	c.s.dismissSession(c) // nobody looks at its statistics any more
	if c.stats >= 0 {     // it was not admitted
		_ = unix.Close(c.stats)
		c.stats = -1
	}
}
