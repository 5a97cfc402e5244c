package exntun

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
	"exnet/napi"
	"exnet/node/control"
)

// nodeLine is a node's line in the summary.
type nodeLine struct {
	*control.Status
	sockets *control.Sockets
	in, out float64 // bit/s
}

// writeSummary writes a line for each node, and what may need attention below all.
func writeSummary(w io.Writer, nodes []nodeLine) {
	if len(nodes) == 0 {
		return
	}
	fmt.Fprintf(w, "fabric %s in %s: %s on this host\n", nodes[0].Fabric, nodes[0].Dir, display.Count(len(nodes), "node"))
	lines := []string{"node|namespace|link|peers|in|out|direct|addresses"}
	for _, n := range nodes {
		lines = append(lines, fmt.Sprintf("%d|%s|%s|%s|%s|%s|%s|%s", n.Node, namespaceOf(n.Status), n.linkText(),
			n.linkedPeers(), formatRate(n.in), formatRate(n.out), n.directText(), n.shownAddresses()))
	}
	(&table{w}).writeLines(lines...)
	for _, n := range nodes {
		if list := n.listWarnings(); len(list) > 0 {
			printWrapped(w, fmt.Sprintf("node %d: %s", n.Node, strings.Join(list, "; ")))
		}
	}
}

// shownAddresses returns the addresses that are not link-local.
func (n nodeLine) shownAddresses() string {
	var list []string
	for _, a := range n.Interface.Addrs {
		if !a.Addr().IsLinkLocalUnicast() {
			list = append(list, a.Addr().String())
		}
	}
	return choose(len(list) == 0, "-", strings.Join(list, " "))
}

// namespaceOf names the namespace of a node.
func namespaceOf(s *control.Status) string { return namespaceName(s.NetNS) }

// namespaceName names the namespace at a path: as "ip netns" does, or by a process in it.
func namespaceName(path string) string {
	pid := 0
	switch n, _ := fmt.Sscanf(path, "/proc/%d/ns/net", &pid); {
	case strings.HasPrefix(path, "/run/netns/"), strings.HasPrefix(path, "/var/run/netns/"):
		return printable(filepath.Base(path))
	case n == 1 && path == fmt.Sprintf("/proc/%d/ns/net", pid):
		return fmt.Sprintf("pid %d", pid)
	}
	return "unnamed"
}

// up is the state of a peer whose link works.
const up = "up"

// linkText says whether the interface is up, and which kinds of links reach its peers.
func (n nodeLine) linkText() string {
	if n.Interface.Elsewhere != "" {
		return "moved"
	}
	if !n.Interface.Up {
		return "down"
	}
	var kinds []string
	for _, p := range n.Peers {
		if p.State == up && p.Link != "" && !slices.Contains(kinds, p.Link) {
			kinds = append(kinds, p.Link)
		}
	}
	slices.Sort(kinds)
	return choose(len(kinds) == 0, up, strings.Join(kinds, "+"))
}

// linkedPeers returns how many peers are linked, of how many.
func (n nodeLine) linkedPeers() string {
	linked := 0
	for _, p := range n.Peers {
		if p.State == up {
			linked++
		}
	}
	return fmt.Sprintf("%d/%d", linked, len(n.Peers))
}

// directText returns how many connections in the node's namespace are direct, of how many that
// are open.
func (n nodeLine) directText() string {
	if n.sockets == nil || n.sockets.Broker == "" {
		return "-"
	}
	direct, all := directOf(n.sockets)
	return fmt.Sprintf("%d/%d", direct, all)
}

// directOf counts the connections that are direct, and all.
func directOf(s *control.Sockets) (direct, all int) {
	for _, c := range s.Connections {
		if c.Mode == connstats.ModeDirect.String() {
			direct++
		}
	}
	return direct, len(s.Connections)
}

// listWarnings returns what may need the user's attention.
func (n nodeLine) listWarnings() (list []string) {
	for _, p := range n.Peers {
		if p.Error != "" {
			list = append(list, fmt.Sprintf("peer %d: %s", p.Node, p.Error))
		} else if p.State != up {
			list = append(list, fmt.Sprintf("peer %d is %s", p.Node, p.State))
		}
	}
	s := n.Interface.Stats
	if bad := s.RxErrors + s.TxErrors; bad > 0 {
		list = append(list, display.Count(int(min(bad, 1<<31)), "error"))
	}
	if lost := s.RxDropped + s.TxDropped; lost > 0 {
		list = append(list, fmt.Sprintf("%d dropped", lost))
	}
	if n.Faults != nil && *n.Faults != "" {
		list = append(list, "faults "+*n.Faults)
	}
	if n.Receive.Mode == napi.ModeBusyPoll {
		list = append(list, "busy polling")
	}
	if n.sockets != nil && n.sockets.Broker == "" {
		list = append(list, "another broker serves its namespace")
	}
	return list
}

// formatRate formats bits per second.
func formatRate(bits float64) string {
	for _, u := range []struct {
		at   float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= u.at {
			return display.Number(bits/u.at) + " " + u.name
		}
	}
	return fmt.Sprintf("%.0f bit/s", bits)
}
