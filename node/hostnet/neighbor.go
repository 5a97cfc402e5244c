package hostnet

import (
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Neighbor is an entry of the kernel's neighbour table.
type Neighbor struct {
	Addr  netip.Addr
	MAC   [6]byte
	Known bool   // MAC is valid
	State string // as ip neigh says, in lower case
}

// neighborStates are the names of the states (NUD_* of linux/neighbour.h).
var neighborStates = []struct {
	bit  int
	name string
}{
	{unix.NUD_INCOMPLETE, "incomplete"},
	{unix.NUD_REACHABLE, "reachable"},
	{unix.NUD_STALE, "stale"},
	{unix.NUD_DELAY, "delay"},
	{unix.NUD_PROBE, "probe"},
	{unix.NUD_FAILED, "failed"},
	{unix.NUD_PERMANENT, "permanent"},
}

// Neighbors returns the neighbours on an Ethernet interface that the kernel has asked for.
func (c *Conn) Neighbors(index int) (list []Neighbor, err error) {
	err = c.withHandle(func(h *netlink.Handle) error {
		entries, err := dumpStable(func() ([]netlink.Neigh, error) { return h.NeighList(index, netlink.FAMILY_ALL) })
		if err != nil {
			return linkError(index, err)
		}
		for _, e := range entries {
			addr, ok := netip.AddrFromSlice(e.IP)
			if !ok || e.State&^unix.NUD_NOARP == 0 { // multicast groups, and entries that need no MAC
				continue
			}
			n := Neighbor{Addr: addr.Unmap(), State: stateOf(e.State)}
			n.Known = copy(n.MAC[:], e.HardwareAddr) == len(n.MAC)
			list = append(list, n)
		}
		return nil
	})
	return list, err
}

func stateOf(bits int) string {
	var names []string
	for _, s := range neighborStates {
		if bits&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	return strings.Join(names, " ")
}
