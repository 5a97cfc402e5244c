package hostnet

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/internal/netns"
)

var (
	// ErrClosed says that the Conn was closed. The caller uses the Conn after it has closed it.
	ErrClosed = errors.New("hostnet: closed")

	// ErrNoLink says that the namespace has no such interface (any more).
	ErrNoLink = errors.New("no such interface")
)

// Conn is a connection to the network configuration of one namespace.
//
// Concurrency: all methods may be called from many goroutines.
type Conn struct {
	ns *netns.NS

	mu sync.Mutex
	// h is nil after Close. A closed handle must not be used: it would fall back
	// to the namespace of the thread.
	h *netlink.Handle // +checklocks:mu
}

// Open connects to the namespace ns, or if that is nil to the calling thread's.
// The Conn remains valid when ns is closed.
func Open(ns *netns.NS) (*Conn, error) {
	var h *netlink.Handle
	err := runIn(ns, func() (err error) {
		// NewHandle binds its sockets to the namespace of the thread, which is ns here.
		// NewHandleAt would move the thread itself, and continue on it even if it could not
		// move it back.
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hostnet: %w", err)
	}
	return &Conn{ns: ns, h: h}, nil
}

// runIn runs f in ns, or where it is.
func runIn(ns *netns.NS, f func() error) error {
	if ns == nil {
		return f()
	}
	return ns.Do(f)
}

// Close ends the connection. What was configured stays. It is idempotent.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h != nil {
		c.h.Close()
		c.h = nil
	}
	return nil
}

// withHandle runs f with the handle.
func (c *Conn) withHandle(f func(h *netlink.Handle) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h == nil {
		return ErrClosed
	}
	return f(c.h)
}

// byIndex returns a netlink.Link that has only the index of an interface.
func byIndex(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// linkError names the interface in err, and replaces the errors for a missing interface by
// ErrNoLink.
func linkError(what any, err error) error {
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		err = ErrNoLink
	}
	return fmt.Errorf("hostnet: interface %v: %w", what, err)
}
