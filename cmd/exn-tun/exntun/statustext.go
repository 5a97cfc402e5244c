package exntun

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"exnet/internal/counter"
	"exnet/internal/display"
	"exnet/napi"
	"exnet/node/control"
)

// writeStatus writes the status of a node as text: first the interface in the style of listing
// 5.1, last the counters, those that are 0 only if all is set.
func writeStatus(w io.Writer, s *control.Status, all bool) {
	writeInterface(w, &s.Interface)
	fmt.Fprintln(w)
	printWrapped(w, fmt.Sprintf("node %d of fabric %s in %s, namespace %s, process %d, up %v, %s, %s", s.Node, s.Fabric, s.Dir, namespaceOf(s), s.PID,
		display.Age(s.Since), pathOf(s),
		choose(s.RealTime, "real-time", "normal priority")))
	switch s.Interface.Elsewhere {
	case "":
	case control.Unknown:
		fmt.Fprintf(w, "%s was moved to a network namespace that the node cannot enter: move it back\n", s.Interface.Name)
	default:
		fmt.Fprintf(w, "%s was moved to network namespace %s\n", s.Interface.Name, namespaceName(s.Interface.Elsewhere))
	}
	if s.Topology != "" {
		fmt.Fprintf(w, "topology %s\n", s.Topology)
	}
	if s.Listen != "" {
		fmt.Fprintf(w, "nodes of other hosts connect to %s, %s\n", s.Listen, choose(s.Plaintext, "in plaintext", "encrypted"))
	}
	if s.Metrics != "" {
		fmt.Fprintf(w, "metrics at %s\n", s.Metrics)
	}
	if s.Faults != nil {
		fmt.Fprintf(w, "links with faults: %s\n", choose(*s.Faults == "", "none", *s.Faults))
	}
	t := table{w: w}
	writeNeighbors(&t, s.Neighbors)
	writeRoutes(&t, s.Routes)
	writePeers(&t, s.Peers)
	writeShared(&t, s.Shared)
	if s.Ethernet != nil {
		writeStations(&t, s.Ethernet.Stations)
	}
	writeGroups(&t, s.Groups)
	writeReceive(&t, &s.Receive)
	writeWaits(&t, &s.Waits)
	if s.Memory != nil {
		writeMemory(&t, s.Memory)
	}
	fmt.Fprintf(w, "\nthresholds\n  eager up to %d bytes, then rendezvous\n  VELO payload %d, RMA packet %d, MTU %d\n",
		s.Threshold.Eager, s.Threshold.VELO, s.Threshold.RMA, s.Threshold.MTU)
	writeCounters(w, s.Counters, all)
}

// pathOf says what a packet goes through.
func pathOf(s *control.Status) string {
	if s.Ethernet != nil {
		return "Ethernet (TAP), netstack bypassed"
	}
	return choose(s.FastPath, "fast path", "no fast path")
}

// Flags of an interface (linux/if.h), as ifconfig shows them.
const (
	flagUp        = 0x1
	flagBroadcast = 0x2
	flagRunning   = 0x40
	flagMulticast = 0x1000
)

// writeInterface writes the interface as ifconfig does. The kernel sees a TUN device; this is
// the EXN interface behind it, which has a MAC address and broadcast.
func writeInterface(w io.Writer, i *control.Interface) {
	flags, names := flagBroadcast|flagMulticast, "BROADCAST,MULTICAST"
	if i.Up {
		flags, names = flags|flagUp|flagRunning, "UP,BROADCAST,RUNNING,MULTICAST"
	}
	fmt.Fprintf(w, "%s: flags=%d<%s>  mtu %d\n", printable(i.Name), flags, names, i.MTU)
	const indent = "        "
	for _, a := range i.Addrs {
		if a.Addr().Is4() {
			fmt.Fprintf(w, indent+"inet %v  netmask %v%s\n", a.Addr(), net.IP(net.CIDRMask(a.Bits(), 32)), broadcastOf(a))
		}
	}
	for _, a := range i.Addrs {
		if a.Addr().Is6() {
			fmt.Fprintf(w, indent+"inet6 %v  prefixlen %d  scopeid %s\n", a.Addr(), a.Bits(),
				choose(a.Addr().IsLinkLocalUnicast(), "0x20<link>", "0x0<global>"))
		}
	}
	s := i.Stats
	fmt.Fprintf(w, indent+"ether %s  txqueuelen %d  (Ethernet)\n", i.MAC, i.TxQueueLen)
	fmt.Fprintf(w, indent+"RX packets %d  bytes %d (%s)\n", s.RxPackets, s.RxBytes, display.Bytes(s.RxBytes))
	fmt.Fprintf(w, indent+"RX errors %d  dropped %d  overruns %d  frame %d\n", s.RxErrors, s.RxDropped, s.RxOverruns, s.RxFrame)
	fmt.Fprintf(w, indent+"TX packets %d  bytes %d (%s)\n", s.TxPackets, s.TxBytes, display.Bytes(s.TxBytes))
	fmt.Fprintf(w, indent+"TX errors %d  dropped %d overruns %d  carrier %d  collisions %d\n", s.TxErrors, s.TxDropped, s.TxOverruns, s.TxCarrier, s.Collisions)
}

// broadcastOf returns the broadcast address of an IPv4 network as text, "" if it has none (RFC
// 3021).
func broadcastOf(p netip.Prefix) string {
	if p.Bits() > 30 {
		return ""
	}
	a, mask := p.Addr().As4(), net.CIDRMask(p.Bits(), 32)
	for i := range a {
		a[i] |= ^mask[i]
	}
	return "  broadcast " + netip.AddrFrom4(a).String()
}

// table writes tables with a title.
type table struct{ w io.Writer }

// writeRows writes a title and a table: the first line has the names of the columns, which are
// separated by "|".
func (t *table) writeRows(title string, lines ...string) {
	fmt.Fprintf(t.w, "\n%s\n", title)
	if len(lines) == 1 {
		fmt.Fprintln(t.w, "  none")
		return
	}
	t.writeLines(lines...)
}

// writeLines writes a table. Where it is wider than tableWidth, each row goes on below itself,
// further in.
func (t *table) writeLines(lines ...string) {
	rows := make([][]string, len(lines))
	var widths []int
	for i, l := range lines {
		rows[i] = strings.Split(l, "|")
		widths = append(widths, make([]int, max(len(rows[i])-len(widths), 0))...)
		for k, cell := range rows[i] {
			widths[k] = max(widths[k], utf8.RuneCountInString(cell))
		}
	}
	ends := foldColumns(widths)
	for _, row := range rows {
		from, indent := 0, columnGap
		for _, to := range ends {
			to = min(to, len(row))
			line := strings.Repeat(" ", indent)
			for k := from; k < to; k++ {
				line += fmt.Sprintf("%-*s", widths[k]+columnGap, row[k])
			}
			if line = strings.TrimRight(line, " "); line != "" {
				fmt.Fprintln(t.w, line)
			}
			from, indent = to, foldIndent
		}
	}
}

const (
	columnGap  = 2 // columns of a terminal between those of a table, and before the first
	foldIndent = 6 // before those that are below
)

// foldColumns divides the columns of a table into lines that fit, and returns where each ends. A
// column that is too wide has a line of its own.
func foldColumns(widths []int) (ends []int) {
	at, first := columnGap, 0
	for k, w := range widths {
		if k > first && at+w > tableWidth {
			ends = append(ends, k)
			at, first = foldIndent, k
		}
		at += w + columnGap
	}
	return append(ends, len(widths))
}

func writeNeighbors(t *table, neighbors []control.Neighbor) {
	lines := []string{"address|MAC|node|state"}
	for _, n := range neighbors {
		who := "-"
		if n.Node != nil {
			who = strconv.Itoa(*n.Node)
		}
		lines = append(lines, fmt.Sprintf("%v|%s|%s|%s", n.Addr, choose(n.MAC == "", "-", n.MAC), who, n.State))
	}
	t.writeRows("neighbours", lines...)
}

func writeRoutes(t *table, routes []control.Route) {
	lines := []string{"destination|gateway|source|metric"}
	text := func(a *netip.Addr) string {
		if a == nil {
			return "-"
		}
		return a.String()
	}
	for _, r := range routes {
		lines = append(lines, fmt.Sprintf("%v|%s|%s|%d", r.Dst, text(r.Gateway), text(r.Src), r.Metric))
	}
	t.writeRows("routes", lines...)
}

func writePeers(t *table, peers []control.Peer) {
	lines := []string{"node|state|link|hops|since|linked|round trip|sent|received|MTU|addresses|reached at|last error"}
	for _, p := range peers {
		var addrs []string
		for _, a := range p.Addrs {
			addrs = append(addrs, a.Addr().String())
		}
		hops := "-"
		if p.Hops > 0 {
			hops = strconv.Itoa(p.Hops)
		}
		trip, sent, received := "-", "-", "-"
		if p.RTTMicros > 0 {
			trip = fmt.Sprintf("%d µs", p.RTTMicros)
			sent, received = display.Bytes(p.TxRate)+"/s", display.Bytes(p.RxRate)+"/s"
		}
		lines = append(lines, fmt.Sprintf("%d|%s|%s|%s|%v|%s|%s|%s|%s|%d|%s|%s|%s", p.Node, p.State, linkOf(p), hops,
			display.Age(p.Since), times(p.Links), trip, sent, received, p.MTU,
			choose(len(addrs) == 0, "-", strings.Join(addrs, " ")), choose(p.Endpoint == "", "this host", p.Endpoint), choose(p.Error == "", "-", p.Error)))
	}
	t.writeRows("peers", lines...)
}

// writeShared writes the traffic that crosses no link, if there is any.
func writeShared(t *table, shared []control.Shared) {
	lines := []string{"node|sent|messages|received|messages"}
	for _, s := range shared {
		lines = append(lines, fmt.Sprintf("%d|%s|%d|%s|%d", s.Node, display.Bytes(s.Sent.Bytes), s.Sent.Messages, display.Bytes(s.Received.Bytes), s.Received.Messages))
	}
	if len(shared) > 0 {
		t.writeRows("direct sockets in shared memory, on no link", lines...)
	}
}

func writeStations(t *table, stations []control.Station) {
	lines := []string{"MAC|behind node|seen"}
	for _, s := range stations {
		lines = append(lines, fmt.Sprintf("%s|%d|%v ago", s.MAC, s.Node, display.Age(s.Seen)))
	}
	t.writeRows("stations", lines...)
}

// linkOf names the link that carries a peer's traffic.
func linkOf(p control.Peer) string {
	switch {
	case p.Link == "":
		return "-"
	case p.Endpoint == "":
		return p.Link
	}
	text := p.Link + choose(p.Key == "" || strings.HasPrefix(p.Link, "ofi"), ", plaintext", ", encrypted")
	if p.Congestion != "" {
		text += ", " + p.Congestion
	}
	return text
}

func writeGroups(t *table, groups []control.Group) {
	lines := []string{"IP group|fabric group|nodes"}
	for _, g := range groups {
		lines = append(lines, fmt.Sprintf("%v|%d|%s", g.Addr, g.Group, strings.Trim(fmt.Sprint(g.Members), "[]")))
	}
	t.writeRows("multicast groups", lines...)
}

func times(n uint64) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func writeReceive(t *table, r *control.ReceiveStatus) {
	coalesce := "interrupts are not held back"
	switch {
	case r.Adaptive:
		coalesce = "dynamic ITR"
	case r.CoalesceUsecs > 0:
		coalesce = fmt.Sprintf("interrupts held back for %d µs", r.CoalesceUsecs)
		if r.CoalesceFrames > 0 {
			coalesce += fmt.Sprintf(" or %d frames", r.CoalesceFrames)
		}
	}
	lines := []string{"unit|interrupts|held back|polls|frames|work/poll|half of it|budget|used up|ITR"}
	for _, u := range r.Units {
		perPoll := 0.0
		if u.Polls > 0 {
			perPoll = float64(u.Frames) / float64(u.Polls)
		}
		lines = append(lines, fmt.Sprintf("%s|%d|%d|%d|%d|%.2f|%s|%d|%d|%s", u.Name, u.Interrupts, u.Coalesced, u.Polls,
			u.Frames, perPoll, medianWork(u.WorkPerPoll), u.Budget, u.Exhausted, u.ITR))
	}
	t.writeRows(fmt.Sprintf("receive: mode %v, %s", r.Mode, coalesce), lines...)
}

// writeWaits writes how long packets waited, by the bounds that some exceeded.
func writeWaits(t *table, w *counter.WaitTimes) {
	all := uint64(0)
	for _, n := range w.Counts {
		all += n
	}
	if all == 0 {
		return
	}
	lines := []string{"waited|packets|share"}
	for i, n := range w.Counts {
		if n == 0 {
			continue
		}
		bound := "longer"
		if i < len(counter.WaitBounds) {
			bound = "<= " + counter.WaitBounds[i].String()
		}
		lines = append(lines, fmt.Sprintf("%s|%d|%.3f %%", bound, n, 100*float64(n)/float64(all)))
	}
	t.writeRows(fmt.Sprintf("data path: packets of this host waited for %v on average", display.Duration(w.Sum/time.Duration(all))), lines...)
}

// medianWork returns the number of frames that half of the polls did not exceed.
func medianWork(work [napi.WorkBuckets]uint64) string {
	var polls, sum uint64
	for _, n := range work {
		polls += n
	}
	for bucket, n := range work {
		if sum += n; polls > 0 && 2*sum >= polls {
			return fmt.Sprintf("<= %d", 1<<bucket-1)
		}
	}
	return "-"
}

// writeCounters writes counters, two on a line where they fit: all, or those that are not 0.
func writeCounters(w io.Writer, c counter.List, all bool) {
	fmt.Fprintln(w, "\ncounters")
	zero := 0
	if !all {
		every := len(c)
		c = slices.DeleteFunc(slices.Clone(c), func(e counter.Value) bool { return e.Value == 0 })
		zero = every - len(c)
	}
	half := (len(c) + 1) / 2
	left, right := newCounterColumn(c[:half]), newCounterColumn(c[half:])
	if left.width()+right.width() > tableWidth {
		half = len(c)
		left = newCounterColumn(c)
	}
	for i := range half {
		left.writeValue(w, c[i])
		if j := half + i; j < len(c) {
			right.writeValue(w, c[j])
		}
		fmt.Fprintln(w)
	}
	if zero > 0 {
		fmt.Fprintf(w, "  %d more are 0\n", zero)
	}
}

// counterColumn is how wide the names and the values of some counters are.
type counterColumn struct{ name, value int }

func newCounterColumn(list counter.List) (c counterColumn) {
	for _, e := range list {
		c.name, c.value = max(c.name, len(e.Name)), max(c.value, len(strconv.FormatUint(e.Value, 10)))
	}
	return c
}

func (c counterColumn) width() int { return 2*columnGap + c.name + c.value }

func (c counterColumn) writeValue(w io.Writer, e counter.Value) {
	fmt.Fprintf(w, "%*s%-*s%*d", columnGap, "", c.name+columnGap, e.Name, c.value, e.Value)
}
