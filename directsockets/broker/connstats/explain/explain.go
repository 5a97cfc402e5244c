// Package explain says in words how a connection goes, and why: what exn-run --explain and exn-tun
// explain print.
//
// # Exports
//
// [Line] is the text about a connection, [Amounts] what it has moved, and [Movement] why it does
// not move. [Stays] and [Passes] are about a program.
package explain

import (
	"fmt"
	"math"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
)

// WasDirect reports whether bytes went over the segment.
func WasDirect(c *connstats.Connection) bool { return c.Sent.DirectBytes+c.Received.DirectBytes > 0 }

// Why says a reason in words that tell what to do.
func Why(w connstats.Why) string {
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

// Stays says why all sockets of a program stay the kernel's. "": they do not.
func Stays(m connstats.Missed) string {
	if m.Count == 0 {
		return ""
	}
	return "no jump can replace its system call at " + firstCall(m)
}

// Passes says what goes past the library of a program. "": nothing does, as far as is known.
func Passes(m connstats.Missed) string {
	if m.Count == 0 {
		return ""
	}
	return "the library does not see its system call at " + firstCall(m) + ": what is sent there on a direct connection is lost"
}

// firstCall says where the first system call is, and how many there are.
func firstCall(m connstats.Missed) string {
	text := fmt.Sprintf("%#x", m.At)
	if m.File != "" {
		text += " of " + m.File
	}
	if m.Count > 1 {
		text += " and " + display.Count(int(m.Count-1), "other")
	}
	return text
}

// Choice says in a few words how a connection went, and why.
func Choice(c *connstats.Connection) string {
	direct := WasDirect(c)
	left := c.Mode == connstats.ModeDemoted.String() || c.Why >= connstats.WhyProgram && c.Why <= connstats.WhyUnsupportedCall
	text := Kernel(c)
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
		text += ": " + Why(c.Why)
	}
	return text
}

// Kernel is what carries a connection that is not direct.
func Kernel(c *connstats.Connection) string {
	if c.UDP {
		return "udp"
	}
	return "tcp"
}

// Line is what --explain and --verbose print of a connection.
func Line(c *connstats.Connection) string {
	arrow := "->"
	if c.Server {
		arrow = "<-"
	}
	kind := ""
	if c.UDP {
		kind = "udp "
	}
	return fmt.Sprintf("%s[%d] %s%v %s %v: %s", c.Program, c.PID, kind, c.Local, arrow, c.Remote, Choice(c))
}

// Amounts is what went each way, "" if nobody counted it: a connection that is TCP
// for good is left alone.
func Amounts(c *connstats.Connection) string {
	if !WasDirect(c) && c.Sent.ShadowBytes+c.Received.ShadowBytes == 0 {
		return ""
	}
	by := Kernel(c)
	return fmt.Sprintf("; sent %s direct, %s %s; received %s direct, %s %s", display.Bytes(c.Sent.DirectBytes), display.Bytes(c.Sent.ShadowBytes), by,
		display.Bytes(c.Received.DirectBytes), display.Bytes(c.Received.ShadowBytes), by)
}

// Times says since when a connection is direct, and how often it went back, as far as that is told.
func Times(c *connstats.Connection) (text string) {
	if !c.DirectSince.IsZero() {
		text = " for " + display.Age(c.DirectSince)
	}
	if c.Returns > 0 {
		text += fmt.Sprintf("; went back %s", display.Count(int(min(c.Returns, math.MaxInt)), "time"))
	}
	return text
}

// Restore sets what the JSON form of a connection says in words only.
func Restore(c *connstats.Connection) {
	for w := connstats.WhyNothing; w <= connstats.WhyLast; w++ {
		if w.String() == c.Reason {
			c.Why = w
		}
	}
	for _, p := range []connstats.Path{connstats.PathMemory, connstats.PathFabric} {
		if p.String() == c.Path {
			c.Via = p
		}
	}
	if c.RDMA {
		c.Via = connstats.PathRDMA
	}
}

// sent and received are what an end has moved, as far as it is counted.
func sent(c *connstats.Connection) uint64     { return c.Sent.DirectBytes + c.Sent.ShadowBytes }
func received(c *connstats.Connection) uint64 { return c.Received.DirectBytes + c.Received.ShadowBytes }

// Moved is what an end has sent and received since it was before.
func Moved(before, c *connstats.Connection) (out, in uint64) {
	return sent(c) - sent(before), received(c) - received(before)
}

// Unread is how many bytes of a connection its two ends have sent each other and not read: the
// other end, and this one. other nil: it is not known, and the other end has not read what is in
// the ring at least.
func Unread(c, other *connstats.Connection) (byOther, byThis uint64) {
	if other == nil {
		return c.RingUsed, 0
	}
	return sent(c) - min(sent(c), received(other)), sent(other) - min(sent(other), received(c))
}

// Movement says how fast a connection has moved in the last second, from what it was before to what
// it is, or else which end waits for which. other is its other end; nil: that is not known. "": its
// bytes are not counted.
func Movement(before, c, other *connstats.Connection) string {
	out, in := Moved(before, c)
	byOther, byThis := Unread(c, other)
	switch {
	case sent(c)+received(c) == 0:
		return ""
	case out != 0 || in != 0:
		return fmt.Sprintf("sends %s/s, receives %s/s", display.Bytes(out), display.Bytes(in))
	case other == nil && byOther > 0:
		return fmt.Sprintf("nothing moves: the other end has not read %s", display.Bytes(byOther))
	case other == nil:
		return "nothing moves"
	case byOther > 0:
		return fmt.Sprintf("nothing moves: %s[%d] has not read %s", other.Program, other.PID, display.Bytes(byOther))
	case byThis > 0:
		return fmt.Sprintf("nothing moves: this program has not read %s", display.Bytes(byThis))
	}
	return "nothing moves: neither end sends"
}
