package exnrun

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
)

// wasDirect reports whether bytes went over the segment.
func wasDirect(c *connstats.Connection) bool { return c.Sent.DirectBytes+c.Received.DirectBytes > 0 }

// why says a reason in words that tell what to do.
func why(w connstats.Why) string {
	texts := map[connstats.Why]string{
		connstats.WhyNotYet:           "too few bytes moved",
		connstats.WhyNoBroker:         "no broker",
		connstats.WhyNoListener:       "no direct listener is known at the server's port",
		connstats.WhyRule:             "a rule says tcp",
		connstats.WhyOffered:          "offered, and not taken",
		connstats.WhyRefused:          "refused",
		connstats.WhyNoMemory:         "no memory or descriptors left",
		connstats.WhyProgram:          "the program gave it up (exec, descriptor passed on, urgent data, an option, asynchronous I/O)",
		connstats.WhyPeer:             "the peer has ended or gone back to TCP",
		connstats.WhyBreach:           "the peer broke the rules of the segment",
		connstats.WhyUnsupportedCall:  "a call that only TCP can do",
		connstats.WhyAddressNotWanted: "loopback is not included (--loopback)",
		connstats.WhyNoOffer:          "the client has not offered it",
		connstats.WhyShared:           "another process has the connection, too",
		connstats.WhyBusy:             "a thread waits in a call on the connection",
		connstats.WhyExpired:          "offered, and not taken in time",
		connstats.WhyUnreachable:      "the peer's node cannot be reached",
		connstats.WhyStream:           "it is a standard stream of the program",
		connstats.WhyVersion:          "the broker is of another version",
		connstats.WhySilent:           "the broker does not answer",
		connstats.WhyNoRule:           "the server is on another host (exn-tun up --direct)",
		connstats.WhyIdle:             "both ends are ready for direct, and nothing has moved since",
		connstats.WhyNetwork:          "the network between the two does not carry it any more",
		connstats.WhyNoPair:           "its other end is on another host, a proxy's, or older than the agent",
		connstats.WhyNoDiag:           "the process may not ask the kernel about sockets (AF_NETLINK), which UDP needs",
		connstats.WhySwitchedOff:      "direct sockets are switched off (exn-tun direct)",
	}
	if text, ok := texts[w]; ok {
		return text
	}
	return w.String()
}

// choice says in a few words how a connection went, and why.
func choice(c *connstats.Connection) string {
	direct := wasDirect(c)
	left := c.Mode == connstats.ModeDemoted.String() || c.Why >= connstats.WhyProgram && c.Why <= connstats.WhyUnsupportedCall
	text := kernelOf(c)
	switch {
	case direct && left:
		text = "direct, then " + text
	case !direct && c.Mode != connstats.ModeDirect.String():
	case c.Via == connstats.PathMemory:
		return "direct: both ends share memory"
	case c.Via == connstats.PathFabric:
		return "direct: through the fabric, as the client's node asks (exn-tun up --direct)"
	case c.Via == connstats.PathRDMA:
		return "direct: through the fabric, as RDMA hardware joins the hosts"
	default:
		return "direct"
	}
	if c.Why != connstats.WhyNothing {
		text += ": " + why(c.Why)
	}
	return text
}

// kernelOf is what carries a connection that is not direct.
func kernelOf(c *connstats.Connection) string {
	if c.UDP {
		return "udp"
	}
	return "tcp"
}

// line is what --explain and --verbose print of a connection.
func line(c *connstats.Connection) string {
	arrow := "->"
	if c.Server {
		arrow = "<-"
	}
	kind := ""
	if c.UDP {
		kind = "udp "
	}
	return fmt.Sprintf("%s[%d] %s%v %s %v: %s", c.Program, c.PID, kind, c.Local, arrow, c.Remote, choice(c))
}

// amounts is what went each way, "" if nobody counted it: a connection that is TCP
// for good is left alone.
func amounts(c *connstats.Connection) string {
	if !wasDirect(c) && c.Sent.ShadowBytes+c.Received.ShadowBytes == 0 {
		return ""
	}
	by := kernelOf(c)
	return fmt.Sprintf("; sent %s direct, %s %s; received %s direct, %s %s", display.Bytes(c.Sent.DirectBytes), display.Bytes(c.Sent.ShadowBytes), by,
		display.Bytes(c.Received.DirectBytes), display.Bytes(c.Received.ShadowBytes), by)
}

// details are the other counters, without those that are zero.
func details(c *connstats.Connection) string {
	var parts []string
	add := func(name string, n uint64) {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	for _, way := range []struct {
		name string
		connstats.Traffic
	}{{"tx", c.Sent}, {"rx", c.Received}} {
		add(way.name+" VELO", way.VELO)
		add(way.name+" VELO_LAST", way.VELOLast)
		add(way.name+" RMA_INFO", way.RMAInfo)
		add(way.name+" RMA_AVAIL", way.RMAAvail)
		add(way.name+" SHUTDOWN", way.Shutdown)
		if c.UDP {
			add("datagrams dropped", way.Demote)
		} else {
			add(way.name+" DEMOTE", way.Demote)
		}
	}
	add("ring", c.RingSize)
	add("sleeps", c.Sleeps)
	add("wake-ups sent", c.WakeUps)
	add("spins that found something", c.SpinHits)
	add("found nothing", c.SpinFails)
	return strings.Join(parts, ", ")
}

// summary is the last line of what --explain prints.
func summary(all []*connstats.Connection, lost, processes int) string {
	if processes == 0 {
		return "no TCP connections seen: is the program static or setuid?"
	}
	direct, udp, reasons := 0, 0, make(map[connstats.Why]int)
	for _, c := range all {
		switch {
		case wasDirect(c):
			direct++
			continue
		case c.UDP:
			udp++
		}
		reasons[c.Why]++
	}
	text := fmt.Sprintf("%s in %s: %d direct, %d tcp", display.Count(len(all), "connection"), display.Count(processes, "process"), direct, len(all)-direct-udp)
	if udp > 0 {
		text += fmt.Sprintf(", %d udp", udp)
	}
	var parts []string
	for w := connstats.WhyNotYet; w <= connstats.WhyLast; w++ {
		if n := reasons[w]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", n, why(w)))
		}
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d more that were too short or too many to be seen", lost)
	}
	return text
}

// Record is a line of --report.
type Record struct {
	// Path is direct if bytes went over the segment, else tcp or udp.
	Path   string `json:"path"`
	Choice string `json:"choice"` // as --explain says it
	Why    int    `json:"why"`    // reason of SPEC.md, 6.3
	connstats.Connection
}

// writeReport writes a Record a line.
func writeReport(w io.Writer, all []*connstats.Connection) error {
	lines := json.NewEncoder(w)
	for _, c := range all {
		r := Record{Path: kernelOf(c), Choice: choice(c), Why: int(c.Why), Connection: *c}
		if wasDirect(c) {
			r.Path = "direct"
		}
		if err := lines.Encode(r); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}
