package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// EventKind says what an Event is about. The zero value is invalid.
type EventKind uint8

const (
	AddrAdded    EventKind = iota + 1 // Event.Addr
	AddrRemoved                       // Event.Addr
	RouteAdded                        // Event.Route
	RouteRemoved                      // Event.Route
	LinkChanged                       // Event.Link: its present state
	IPv6On                            // the interface has its first IPv6 address, or disable_ipv6 was set to 0
	IPv6Off                           // the kernel has removed all IPv6 addresses, however briefly
	LinkRemoved                       // the last event
)

var eventKinds = [...]string{
	AddrAdded: "address added", AddrRemoved: "address removed",
	RouteAdded: "route added", RouteRemoved: "route removed",
	LinkChanged: "link changed", LinkRemoved: "link removed",
	IPv6On: "IPv6 on", IPv6Off: "IPv6 off",
}

func (k EventKind) String() string {
	if k == 0 || int(k) >= len(eventKinds) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventKinds[k]
}

// Event is a change of an interface. Only the fields that Kind names are set.
type Event struct {
	Kind  EventKind
	Addr  netip.Prefix // the address, with the length of its network
	Route Route
	Link  Link
}

// Watcher watches one interface.
//
// Concurrency: Close may be called from any goroutine but the callback's.
type Watcher struct {
	conn  *Conn
	sock  *nl.NetlinkSocket
	index int
	fn    func(Event)
	state state // of the watching goroutine

	stopped atomic.Bool   // set before sock is closed
	done    chan struct{} // closed when the watching goroutine is over
	err     error         // valid then
}

// state is what was reported so far.
type state struct {
	link   Link
	ipv6   bool
	addrs  map[netip.Prefix]bool
	routes map[Route]bool
}

// Watch calls fn for the present state before it returns, and then for every change, on a
// goroutine of its own. Removals come before additions, addresses are added before routes and
// removed after them. Watch reports that the interface was taken down, however briefly. fn must
// not call Close.
func (c *Conn) Watch(index int, fn func(Event)) (*Watcher, error) {
	w := &Watcher{index: index, fn: fn, done: make(chan struct{})}
	err := runIn(c.ns, func() (err error) {
		w.sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hostnet: watching interface %d: %w", index, err)
	}
	// A Conn of its own, so that closing c does not end the watcher.
	if w.conn, err = Open(c.ns); err != nil {
		w.sock.Close()
		return nil, err
	}
	// The socket is subscribed by now: no change is missed in between.
	if err := w.refreshState(); err != nil {
		w.sock.Close()
		return nil, errors.Join(err, w.conn.Close())
	}
	go w.readEvents()
	return w, nil
}

// Close ends the watching, and waits until fn has returned and will not be
// called again. It is idempotent.
func (w *Watcher) Close() error {
	w.stop()
	<-w.done
	return nil
}

func (w *Watcher) stop() {
	if w.stopped.CompareAndSwap(false, true) {
		w.sock.Close()
	}
}

// Done returns a channel that is closed when the watching is over: by Close, by
// the interface's removal, or by an error.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// Err returns the error that ended the watching, nil after Close and before.
// After the interface's removal it wraps ErrNoLink. Before the watching ends with an error, all
// addresses and routes are reported as removed.
func (w *Watcher) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

func (w *Watcher) readEvents() {
	defer close(w.done)
	defer w.conn.Close()
	defer w.stop()
	for {
		msgs, from, err := w.sock.Receive()
		switch {
		case w.stopped.Load(): // Receive may return anything from a closed socket
			return
		case errors.Is(err, unix.ENOBUFS):
			// Messages were lost; the listing makes up for them.
		case err != nil:
			w.reportChange(state{})
			w.err = fmt.Errorf("hostnet: watching interface %d: %w", w.index, err)
			return
		case from.Pid != nl.PidKernel || !slices.ContainsFunc(msgs, w.concerns):
			continue
		}
		if w.state.link.Up && slices.ContainsFunc(msgs, w.saysDown) {
			// It may be up again by now, but without some of its addresses and routes.
			w.state.link.Up, w.state.ipv6 = false, false
			w.fn(Event{Kind: LinkChanged, Link: w.state.link})
		}
		if w.state.ipv6 && slices.ContainsFunc(msgs, w.saysIPv6Off) {
			w.state.ipv6 = false // it may be on again by now, without its addresses
			w.fn(Event{Kind: IPv6Off})
		}
		if w.err = w.refreshState(); w.err != nil {
			return
		}
	}
}

// concerns reports whether a message may be about the interface.
func (w *Watcher) concerns(m syscall.NetlinkMessage) bool {
	index := -1
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
		// The index is at the same place in ifinfomsg and ifaddrmsg.
		if len(m.Data) >= unix.SizeofIfAddrmsg {
			index = int(binary.NativeEndian.Uint32(m.Data[4:]))
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		index = routeIndex(m.Data)
	}
	return index == w.index
}

// ifInfoFlags is the offset of the interface's flags in struct ifinfomsg.
const ifInfoFlags = 8

// saysDown reports whether a message says that the interface is down.
func (w *Watcher) saysDown(m syscall.NetlinkMessage) bool {
	return m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg && w.concerns(m) &&
		binary.NativeEndian.Uint32(m.Data[ifInfoFlags:])&unix.IFF_UP == 0
}

// Offsets in struct rtmsg of linux/rtnetlink.h.
const (
	rtFamily = 0
	rtDstLen = 1
	rtTable  = 4
	rtType   = 7
)

// saysIPv6Off reports whether a message says that the route which ipv6Works looks for was removed.
func (w *Watcher) saysIPv6Off(m syscall.NetlinkMessage) bool {
	return m.Header.Type == unix.RTM_DELROUTE && len(m.Data) >= unix.SizeofRtMsg && w.concerns(m) &&
		m.Data[rtFamily] == unix.AF_INET6 && int(m.Data[rtDstLen]) == ipv6Multicast.Bits() &&
		m.Data[rtTable] == unix.RT_TABLE_LOCAL && m.Data[rtType] == unix.RTN_MULTICAST
}

// routeIndex returns the interface of a route message, -1 if it has none.
// (nl.ParseRouteAttr panics if the last attribute is not padded.)
func routeIndex(data []byte) int {
	attrs := data[min(unix.SizeofRtMsg, len(data)):]
	for len(attrs) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(attrs))
		kind := binary.NativeEndian.Uint16(attrs[2:])
		if size < unix.SizeofRtAttr || size > len(attrs) {
			return -1
		}
		if kind == unix.RTA_OIF && size >= unix.SizeofRtAttr+4 {
			return int(binary.NativeEndian.Uint32(attrs[unix.SizeofRtAttr:]))
		}
		padded := (size + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1)
		attrs = attrs[min(padded, len(attrs)):]
	}
	return -1
}

// refreshState lists the present state, and reports it. After an error there is none.
func (w *Watcher) refreshState() error {
	now, err := w.readState()
	known := w.state.link != (Link{})
	w.reportChange(now)
	if known && errors.Is(err, ErrNoLink) {
		w.fn(Event{Kind: LinkRemoved})
	}
	return err
}

// reportChange reports how a state differs from what was reported before. The zero state is that of
// an interface which can no longer be watched: nothing is known of it.
func (w *Watcher) reportChange(now state) {
	old := w.state
	w.state = now
	if now.link != old.link && now.link != (Link{}) {
		w.fn(Event{Kind: LinkChanged, Link: now.link})
	}
	switch {
	case now.ipv6 && !old.ipv6:
		w.fn(Event{Kind: IPv6On})
	case old.ipv6 && !now.ipv6:
		w.fn(Event{Kind: IPv6Off})
	}
	for _, r := range missingFrom(old.routes, now.routes, compareRoutes) {
		w.fn(Event{Kind: RouteRemoved, Route: r})
	}
	for _, a := range missingFrom(old.addrs, now.addrs, netip.Prefix.Compare) {
		w.fn(Event{Kind: AddrRemoved, Addr: a})
	}
	for _, a := range missingFrom(now.addrs, old.addrs, netip.Prefix.Compare) {
		w.fn(Event{Kind: AddrAdded, Addr: a})
	}
	for _, r := range missingFrom(now.routes, old.routes, compareRoutes) {
		w.fn(Event{Kind: RouteAdded, Route: r})
	}
}

func (w *Watcher) readState() (state, error) {
	link, err := w.conn.LinkByIndex(w.index)
	if err != nil {
		return state{}, err
	}
	addrs, err := w.conn.Addrs(w.index)
	if err != nil {
		return state{}, err
	}
	routes, err := w.conn.Routes(w.index)
	if err != nil {
		return state{}, err
	}
	ipv6, err := w.conn.ipv6Works(w.index)
	if err != nil {
		return state{}, err
	}
	return state{link: link, ipv6: ipv6, addrs: setOf(addrs), routes: setOf(routes)}, nil
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// missingFrom returns the elements of a that b lacks, sorted.
func missingFrom[T comparable](a, b map[T]bool, compare func(x, y T) int) []T {
	return slices.DeleteFunc(slices.SortedFunc(maps.Keys(a), compare), func(v T) bool { return b[v] })
}
