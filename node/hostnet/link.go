package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TxQueueLen is the transmit queue length of an EXN interface (thesis, listing
// 5.1).
const TxQueueLen = 1000

// minIPv6MTU is the smallest MTU of an interface with IPv6 (RFC 8200, section 5).
const minIPv6MTU = 1280

// addrGenModeNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenModeNone = 1

// Link is an interface.
type Link struct {
	Name       string
	Index      int
	MTU        int
	TxQueueLen int
	Up         bool // administratively
}

// LinkConfig is the configuration that Configure applies.
type LinkConfig struct {
	MTU        int            // 0: as it is
	TxQueueLen int            // 0: as it is
	MAC        *[6]byte       // of an Ethernet interface; nil: as it is
	Addrs      []netip.Prefix // addresses with the length of their network

	// NoAutoLinkLocal keeps the kernel from making up an IPv6 link-local address. A TUN device
	// has no MAC, so that would be a random one; put the one of its MAC on the fabric
	// (arp.MAC.LinkLocal) into Addrs instead.
	NoAutoLinkLocal bool

	// CongestionControl is the TCP congestion control on the connected routes of
	// Addrs, which every program's connections over them take, unless it chooses
	// one itself; "": the system's. Unlike the sysctl it works in any namespace.
	// It is lost when the interface is taken down; Restore gives it back.
	CongestionControl string
}

// Link returns the interface of that name.
func (c *Conn) Link(name string) (Link, error) {
	var l Link
	err := c.withHandle(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return linkError(name, err)
		}
		l = linkOf(link)
		return nil
	})
	return l, err
}

// LinkByIndex returns the interface with that index.
func (c *Conn) LinkByIndex(index int) (Link, error) {
	var l Link
	err := c.withHandle(func(h *netlink.Handle) error {
		link, err := h.LinkByIndex(index)
		if err != nil {
			return linkError(index, err)
		}
		l = linkOf(link)
		return nil
	})
	return l, err
}

func linkOf(link netlink.Link) Link {
	a := link.Attrs()
	return Link{Name: a.Name, Index: a.Index, MTU: a.MTU, TxQueueLen: a.TxQLen, Up: a.Flags&net.FlagUp != 0}
}

// LoopbackUp brings up the loopback interface, which is down in a new namespace.
func (c *Conn) LoopbackUp() error {
	lo, err := c.Link("lo")
	if err != nil {
		return err
	}
	return c.Configure(lo.Index, LinkConfig{})
}

// Configure applies cfg to the interface and brings it up. Addresses that it has already stay.
func (c *Conn) Configure(index int, cfg LinkConfig) error {
	for _, a := range cfg.Addrs {
		if !a.IsValid() {
			return fmt.Errorf("hostnet: interface %d: address without a network length", index)
		}
		if a.Addr().Is6() && cfg.MTU != 0 && cfg.MTU < minIPv6MTU {
			return fmt.Errorf("hostnet: interface %d: address %v with an MTU of %d: IPv6 needs %d", index, a, cfg.MTU, minIPv6MTU)
		}
	}
	return c.withHandle(func(h *netlink.Handle) error {
		link := byIndex(index)
		// Before the interface comes up, which is when the kernel makes the address.
		if err := setAutoLinkLocal(h, index, cfg); err != nil {
			return err
		}
		if cfg.MTU != 0 {
			if err := h.LinkSetMTU(link, cfg.MTU); err != nil {
				return linkError(index, fmt.Errorf("MTU %d: %w", cfg.MTU, err))
			}
		}
		if cfg.TxQueueLen != 0 {
			if err := h.LinkSetTxQLen(link, cfg.TxQueueLen); err != nil {
				return linkError(index, fmt.Errorf("queue length %d: %w", cfg.TxQueueLen, err))
			}
		}
		if cfg.MAC != nil {
			if err := h.LinkSetHardwareAddr(link, cfg.MAC[:]); err != nil {
				return linkError(index, fmt.Errorf("MAC address %x: %w", *cfg.MAC, err))
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return linkError(index, fmt.Errorf("bringing it up: %w", err))
		}
		given, err := giveAddrs(h, index, cfg.Addrs, cfg.CongestionControl)
		if err != nil {
			return err
		}
		for _, a := range given {
			if err := awaitLocal(h, a.Addr()); err != nil {
				return linkError(index, fmt.Errorf("address %v: %w", a, err))
			}
		}
		return nil
	})
}

// setAutoLinkLocal keeps the kernel from making up a link-local address, if cfg says so. A kernel
// without IPv6 makes none.
func setAutoLinkLocal(h *netlink.Handle, index int, cfg LinkConfig) error {
	if !cfg.NoAutoLinkLocal {
		return nil
	}
	if err := h.LinkSetIP6AddrGenMode(byIndex(index), addrGenModeNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return linkError(index, err)
	}
	return nil
}

// Adopt prepares an interface that has come from another namespace, where it lost its addresses and
// was taken down: it applies cfg.NoAutoLinkLocal. If a user has brought it up already, Adopt
// removes the link-local address that the kernel made up then.
func (c *Conn) Adopt(index int, cfg LinkConfig) error {
	return c.withHandle(func(h *netlink.Handle) error {
		if err := setAutoLinkLocal(h, index, cfg); err != nil || !cfg.NoAutoLinkLocal {
			return err
		}
		list, err := dumpStable(func() ([]netlink.Addr, error) { return h.AddrList(byIndex(index), netlink.FAMILY_V6) })
		if err != nil {
			return linkError(index, err)
		}
		for _, a := range list {
			if p := prefixOf(a.IPNet); !p.Addr().IsLinkLocalUnicast() || slices.Contains(cfg.Addrs, p) {
				continue
			}
			if err := h.AddrDel(byIndex(index), &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return linkError(index, err)
			}
		}
		return nil
	})
}

// Restore gives back what the interface lost of cfg when it was taken down, or IPv6 was switched
// off: the IPv6 addresses, which the kernel removes, and the congestion control of the routes. It
// does not bring it up.
func (c *Conn) Restore(index int, cfg LinkConfig) error {
	addrs := slices.DeleteFunc(slices.Clone(cfg.Addrs), func(a netip.Prefix) bool { return a.Addr().Is4() })
	return c.withHandle(func(h *netlink.Handle) error {
		_, err := giveAddrs(h, index, addrs, cfg.CongestionControl)
		return err
	})
}

// giveAddrs adds addresses to an interface, sets the congestion control of its routes, and
// returns the addresses that it added: where IPv6 is off, it skips link-local ones.
func giveAddrs(h *netlink.Handle, index int, addrs []netip.Prefix, congestion string) (given []netip.Prefix, err error) {
	link := byIndex(index)
	for _, a := range addrs {
		err := h.AddrReplace(link, addrFor(a))
		// EACCES: the namespace's sysctl disable_ipv6 is set, as in Docker's containers. The
		// other two: the kernel has no IPv6.
		off := a.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP))
		switch {
		case off && a.Addr().IsLinkLocalUnicast():
			continue
		case off:
			return nil, linkError(index, fmt.Errorf("address %v: IPv6 is off in its network namespace: leave the address out, or set the sysctl net.ipv6.conf.all.disable_ipv6 to 0 there", a))
		case err != nil:
			return nil, linkError(index, fmt.Errorf("address %v: %w", a, err))
		}
		given = append(given, a)
	}
	if congestion != "" {
		return given, setRouteCongestion(h, index, congestion)
	}
	return given, nil
}

// localWait is how long the kernel may take to accept packets to a new address.
const localWait = time.Second

// awaitLocal waits until the kernel takes packets to an IPv6 address. It drops them until a
// work queue has added the local route, some time after the address was added. After localWait,
// awaitLocal gives up without an error: packets are lost until then, but the address comes.
func awaitLocal(h *netlink.Handle, a netip.Addr) error {
	if a.Is4() {
		return nil
	}
	want := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: ipNet(netip.PrefixFrom(a, a.BitLen()))}
	for deadline := time.Now().Add(localWait); ; time.Sleep(time.Millisecond) {
		list, err := dumpStable(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(netlink.FAMILY_V6, want, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		})
		if err != nil || len(list) > 0 || time.Now().After(deadline) {
			return err
		}
	}
}

// addrFor makes the netlink form of an address. Package netlink adds the
// broadcast address of IPv4 networks.
func addrFor(a netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is6() {
		// Duplicate address detection takes a second or two in which the address
		// cannot be used, and finds nothing: addresses are unique by node ID.
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf is the converse; the zero Prefix stands for nil.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}
	}
	if bits == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, ones)
}
