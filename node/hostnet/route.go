package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Route is a way out of an interface.
type Route struct {
	Dst               netip.Prefix
	Gateway           netip.Addr // zero: Dst is on the link
	Src               netip.Addr // preferred source address; zero: none
	Metric            int        // the lowest wins
	CongestionControl string     // of TCP; "": the system's
}

// dumpTries bounds how often dumpStable makes a listing.
const dumpTries = 10

// Addrs returns the addresses of the interface with the length of their
// networks, IPv4 before IPv6.
func (c *Conn) Addrs(index int) ([]netip.Prefix, error) {
	var addrs []netip.Prefix
	err := c.withHandle(func(h *netlink.Handle) error {
		list, err := dumpStable(func() ([]netlink.Addr, error) { return h.AddrList(byIndex(index), netlink.FAMILY_ALL) })
		if err != nil {
			return linkError(index, err)
		}
		for _, a := range list {
			if p := prefixOf(a.IPNet); p.IsValid() {
				addrs = append(addrs, p)
			}
		}
		return nil
	})
	slices.SortFunc(addrs, netip.Prefix.Compare)
	return addrs, err
}

// Routes returns the unicast routes of the main table that leave by the
// interface, IPv4 before IPv6.
func (c *Conn) Routes(index int) ([]Route, error) {
	var routes []Route
	err := c.withHandle(func(h *netlink.Handle) error {
		list, err := listRoutes(h, index)
		for _, r := range list {
			routes = append(routes, routeOf(r))
		}
		return err
	})
	slices.SortFunc(routes, compareRoutes)
	return routes, err
}

func listRoutes(h *netlink.Handle, index int) ([]netlink.Route, error) {
	var all []netlink.Route
	filter := &netlink.Route{LinkIndex: index, Type: unix.RTN_UNICAST}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := dumpStable(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TYPE)
		})
		if err != nil {
			return nil, linkError(index, fmt.Errorf("routes: %w", err))
		}
		all = append(all, list...)
	}
	return all, nil
}

// ipv6Multicast is the destination of the route that the kernel gives an interface in the local
// table with its first IPv6 address, or when disable_ipv6 is set to 0, and removes when the
// interface goes down or disable_ipv6 is set to 1 (addrconf_add_mroute of net/ipv6/addrconf.c).
var ipv6Multicast = netip.MustParsePrefix("ff00::/8")

// ipv6Works reports whether the interface has the route to ipv6Multicast.
func (c *Conn) ipv6Works(index int) (works bool, err error) {
	want := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_LOCAL, Dst: ipNet(ipv6Multicast)}
	err = c.withHandle(func(h *netlink.Handle) error {
		list, err := dumpStable(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(netlink.FAMILY_V6, want, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
		})
		works = len(list) > 0
		if err != nil {
			return linkError(index, fmt.Errorf("IPv6: %w", err))
		}
		return nil
	})
	return works, err
}

// dumpStable repeats a listing while the kernel reports that it changed meanwhile.
func dumpStable[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func routeOf(r netlink.Route) Route {
	route := Route{Dst: prefixOf(r.Dst), Metric: r.Priority, CongestionControl: r.Congctl}
	route.Gateway, _ = netip.AddrFromSlice(r.Gw)
	route.Src, _ = netip.AddrFromSlice(r.Src)
	route.Gateway, route.Src = route.Gateway.Unmap(), route.Src.Unmap()
	return route
}

func compareRoutes(a, b Route) int {
	return cmp.Or(a.Dst.Compare(b.Dst), cmp.Compare(a.Metric, b.Metric),
		a.Gateway.Compare(b.Gateway), a.Src.Compare(b.Src), cmp.Compare(a.CongestionControl, b.CongestionControl))
}

// setRouteCongestion gives the connected routes of the interface a congestion
// control, as "ip route change ... congctl" does.
func setRouteCongestion(h *netlink.Handle, index int, name string) error {
	routes, err := listRoutes(h, index)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Gw != nil {
			continue
		}
		r.Congctl = name
		r.Flags = 0 // states such as RTNH_F_LINKDOWN, which the kernel does not accept
		if err := h.RouteReplace(&r); err != nil {
			return fmt.Errorf("hostnet: %w", congestionError(name, err))
		}
	}
	return nil
}
