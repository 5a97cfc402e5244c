package broker

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
)

// udpStates are those of UDP sockets: connected, and not.
const udpStates = 1<<1 | 1<<7

// udpSocket is a UDP socket as the kernel knows it.
type udpSocket struct {
	cookie     uint64
	inode, uid uint32
}

func (u udpSocket) provenBy(p proof) bool {
	return p.inode != 0 && u.inode == p.inode && u.uid == p.uid
}

// findReached returns the socket to which the kernel would give a datagram, by the kernel's own
// lookup. found false: none would get it.
func (d *diag) findReached(from, to netip.AddrPort) (u udpSocket, found bool, err error) {
	if !from.IsValid() || !to.IsValid() || from.Addr().Is4() != to.Addr().Is4() {
		return u, false, fmt.Errorf("%w: addresses of different families", errSocket)
	}
	// A request for one socket has the ends in the order of the packet, unlike those for TCP.
	_, err = d.sendRequest(wire.DiagRequest(unix.IPPROTO_UDP, from, to, 0, ^uint32(0)), 0, func(m []byte) {
		found = true
		u = udpOf(m)
	})
	return u, found, err
}

func udpOf(m []byte) udpSocket {
	return udpSocket{cookieOf(m), binary.NativeEndian.Uint32(m[msgInodeOff:]), binary.NativeEndian.Uint32(m[msgUIDOff:])}
}

// findReceiving checks that p is a UDP socket at a port. It returns the socket, and how much
// processor time the check took: the kernel goes through all of the port's sockets.
func (d *diag) findReceiving(p proof, port uint16) (u udpSocket, spent time.Duration, err error) {
	if port == 0 {
		return u, 0, fmt.Errorf("%w: the socket has no address", errSocket)
	}
	found := false
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		took, err := d.sendRequest(wire.DiagRequest(unix.IPPROTO_UDP, netip.AddrPortFrom(any, port), netip.AddrPortFrom(any, 0), 0, udpStates), unix.NLM_F_DUMP, func(m []byte) {
			if p.isOf(m) && diagEnd(m, idSrcOff, idSportOff).Port() == port {
				found, u = true, udpOf(m)
			}
		})
		spent += took
		if err != nil || found {
			return u, spent, err
		}
	}
	return u, spent, fmt.Errorf("%w: no UDP socket at port %d", errSocket, port)
}

// flowEnds are the two sockets of a flow.
type flowEnds struct {
	sender, receiver udpSocket
}

// flowOf asks the kernel for the sockets of a flow from key.Client to key.Server.
func (s *Server) flowOf(key wire.Key) (f flowEnds, err error) {
	if !key.Valid() || key.Client.Addr().IsLinkLocalUnicast() || !s.isHere(key.Client.Addr()) || !s.isHere(key.Server.Addr()) {
		return f, fmt.Errorf("%w: no addresses of this namespace", errSocket)
	}
	var found [2]bool
	if f.sender, found[0], err = s.diag.findReached(key.Server, key.Client); err != nil {
		return f, err
	}
	if f.receiver, found[1], err = s.diag.findReached(key.Client, key.Server); err != nil {
		return f, err
	}
	if found != [2]bool{true, true} {
		return f, fmt.Errorf("%w: nobody is bound there", errSocket)
	}
	return f, nil
}

// isHere reports whether datagrams to an address stay in the namespace.
func (s *Server) isHere(a netip.Addr) bool { return a.IsLoopback() || s.routes.isLocal(a, 0) }

// receiver is a UDP socket that takes flows.
type receiver struct {
	socket udpSocket
	port   uint16
	c      *session
}

// announceUDP answers the LISTEN of a UDP socket.
func (c *session) announceUDP(m wire.Message, p proof) error {
	u, err := c.udpSocket(p, m)
	if err != nil {
		return c.sendRefusal(m.ID, reasonOf(err))
	}
	ok, err := c.s.addReceiver(m.ID, &receiver{u, m.Server.Port(), c})
	if err == nil && !ok {
		return c.sendRefusal(m.ID, wire.TooMany)
	}
	return err
}

// udpSocket finds the socket that LISTEN or CLAIM is about.
func (c *session) udpSocket(p proof, m wire.Message) (u udpSocket, err error) {
	if m.Interface != 0 || !m.Server.IsValid() {
		return u, fmt.Errorf("%w: bound to an interface", errSocket)
	}
	from := m.Client
	if !from.IsValid() {
		from = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
		if m.Server.Addr().Is4() {
			from = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		}
	}
	if err = c.payCost(paceCost); err != nil {
		return u, err
	}
	u, found, err := c.s.diag.findReached(from, m.Server)
	if err == nil && found && u.provenBy(p) {
		return u, nil
	}
	// Another one of its group has the address, too, or the kernel has not told.
	if c.isUnlimited() {
		u, _, err = c.s.diag.findReceiving(p, m.Server.Port())
		return u, err
	}
	usage := c.user
	charged, wait := usage.listen.chargeBefore(usage.levels, monotonicTime())
	if err := c.sleepFor(wait); err != nil {
		return u, err
	}
	u, spent, err := c.s.diag.findReceiving(p, m.Server.Port())
	usage.listen.chargeAfter(usage.levels, monotonicTime(), charged, spent)
	return u, err
}

// addReceiver adds a socket that takes flows; false: the client has too many.
func (s *Server) addReceiver(id uint32, r *receiver) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := r.c
	if c.listeners == nil {
		return false, wire.ErrClosed
	}
	if c.listeners[id] != nil || c.receivers[id] != nil {
		return false, fmt.Errorf("%w: LISTEN %d exists already", wire.ErrRule, id)
	}
	if len(c.listeners)+len(c.receivers) >= wire.MaxListeners || !c.user.levels.takeAll(listeners, 1) {
		s.count.ListenersRefused.Add(1)
		return false, nil
	}
	if c.receivers == nil {
		c.receivers = make(map[uint32]*receiver)
	}
	c.receivers[id] = r
	s.receivers[r.socket.cookie] = append(s.receivers[r.socket.cookie], r)
	s.udpPorts[r.port]++
	s.page.SetReceivers(r.port, s.udpPorts[r.port])
	return true, nil
}

// +checklocks:s.mu
func (s *Server) removeReceiverLocked(r *receiver) {
	r.c.user.levels.chargeAll(listeners, -1)
	cookie := r.socket.cookie
	all := s.receivers[cookie]
	for i := range all {
		if all[i] == r {
			all = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if s.receivers[cookie] = all; len(all) == 0 {
		delete(s.receivers, cookie)
	}
	if s.udpPorts[r.port]--; s.udpPorts[r.port] == 0 {
		delete(s.udpPorts, r.port)
	}
	s.page.SetReceivers(r.port, s.udpPorts[r.port])
}

// flowOffer checks that the client has shown the sender of a flow, and returns its sockets.
func (c *session) flowOffer(m wire.Message, p proof) (f flowEnds, err error) {
	if m.Interface != 0 {
		return f, fmt.Errorf("%w: bound to an interface", errSocket)
	}
	if f, err = c.s.flowOf(wire.Key{Client: m.Client, Server: m.Server}); err == nil && !f.sender.provenBy(p) {
		err = fmt.Errorf("%w: the sender does not receive at its address", errSocket)
	}
	return f, err
}

// addFlowLocked has the receiver of an offer claim it.
//
// +checklocks:s.mu
func (s *Server) addFlowLocked(o *offer) wire.Reason {
	if len(s.receivers[o.flow.receiver.cookie]) == 0 {
		return wire.NoListener
	}
	o.from.offers[o.nonce] = o
	o.payer = o.from.user.levels
	s.flows[o.key.Server.Port()] = append(s.flows[o.key.Server.Port()], o)
	s.page.AddFlow(o.key.Server.Port())
	s.queueLocked(o, &s.waiting)
	return 0
}

// +checklocks:s.mu
func (s *Server) removeFlowLocked(o *offer) {
	port := o.key.Server.Port()
	for i, at := range s.flows[port] {
		if at == o {
			s.flows[port] = append(s.flows[port][:i:i], s.flows[port][i+1:]...)
			s.page.RemoveFlow(port)
			break
		}
	}
	if len(s.flows[port]) == 0 {
		delete(s.flows, port)
	}
}

// claimUDP answers the CLAIM of a UDP socket: with an offer for it that still stands.
func (c *session) claimUDP(m wire.Message, p proof) error {
	for {
		o := c.flowFor(p, m.Server.Port())
		if o == nil {
			return c.sendReply(wire.Message{Type: wire.None, ID: m.ID})
		}
		f, err := c.s.flowOf(o.key)
		may := c.s.mayClaim(c, o.key, o)
		c.s.mu.Lock()
		switch {
		case !may:
			c.s.endOfferLocked(o, wire.SwitchedOff)
			c.s.mu.Unlock()
			continue
		case o.done:
			c.s.mu.Unlock()
			continue
		case err != nil || f != *o.flow || !f.receiver.provenBy(p):
			c.s.endOfferLocked(o, wire.Expired)
			c.s.mu.Unlock()
			continue
		}
		seg, bell := o.seg, o.bell
		o.seg, o.bell = -1, -1
		c.s.forgetLocked(o)
		c.s.meetLocked(c, o.key.Client.Addr())
		c.s.setUpLocked(o)
		c.s.mu.Unlock()
		taken := offer{seg: seg, bell: bell}
		defer taken.close()
		g := wire.Message{Type: wire.Grant, ID: m.ID, Nonce: o.nonce, Client: o.key.Client, Server: o.key.Server}
		if m.KnowsFlow {
			g.Type, g.Cookie = wire.Flow, f.sender.cookie
		}
		return c.sendReply(g, seg, bell)
	}
}

// flowFor is the oldest offer for a socket that the client has announced; nil: there is none.
func (c *session) flowFor(p proof, port uint16) *offer {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, o := range c.s.flows[port] {
		if !o.flow.receiver.provenBy(p) {
			continue
		}
		for _, r := range c.s.receivers[o.flow.receiver.cookie] {
			if r.c == c {
				return o
			}
		}
	}
	return nil
}
