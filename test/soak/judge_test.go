package soak

import (
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

// faultKind is what is done to what.
type faultKind string

// The kinds of faults.
const (
	nodeKill    faultKind = "node killed"        // kill -9 of the daemon, and started again
	nodeRestart faultKind = "node restarted"     // SIGTERM, and started again
	nodeStop    faultKind = "node stopped"       // SIGSTOP for up to half a second
	nodeCut     faultKind = "node stopped > 1 s" // its links that may lose packets go down, and are made again
	ifDown      faultKind = "interface down"     // and up again
	ifMTU       faultKind = "MTU changed"        // of the interface, and back
	routeMTU    faultKind = "route MTU changed"  // and back
	programKill faultKind = "program killed"     // kill -9 of a client or server, and started again
	programStop faultKind = "program stopped"    // SIGSTOP for up to half a second
)

// fault is one that has been done.
type fault struct {
	Kind    faultKind
	Node    int
	Program string // of programKill and programStop
	Start   time.Time
	End     time.Time // all is as before; zero: not yet
}

// How long after the end of a fault what it has done may come to light: neighbours are looked for
// anew, and a server's kernel answers what came too early.
const (
	connectGrace  = 10 * time.Second
	datagramGrace = 5 * time.Second
)

// overlaps reports whether f can have done something to what went on from start to end.
func (f fault) overlaps(start, end time.Time, grace time.Duration) bool {
	return f.Start.Before(end) && (f.End.IsZero() || f.End.Add(grace).After(start))
}

// hits reports whether f is about one of the ends of r.
func (f fault) hits(r record) bool {
	if f.Program == "" {
		return f.Node == r.Client || f.Node == r.Server
	}
	return f.Node == r.Client && f.Program == clientProgram(r.Kind) || f.Node == r.Server && f.Program == r.Program
}

// clientProgram is the program at the client's end of a kind of traffic.
func clientProgram(kind string) string {
	if kind == "python" {
		return kind
	}
	return roleClient
}

// excuses reports whether f explains what went wrong with r:
//
//	bytes that were not sent    nothing does
//	an established connection   the death of the program at one of its ends; nothing that happens to nodes
//	one that did not come up    that, a node that was away, or an interface that was down
//	one that may be half open   the same: see halfOpen
//	a datagram                  any fault at one of its ends
func (f fault) excuses(r record) bool {
	if r.Corrupt || !f.hits(r) {
		return false
	}
	phase := r.Phase
	if f.halfOpen(r) {
		phase = phaseConnect
	}
	switch phase {
	case phaseData:
		return f.Kind == programKill && f.overlaps(r.Start, r.End, connectGrace)
	case phaseConnect:
		switch f.Kind {
		case programKill, nodeKill, nodeRestart, nodeCut, ifDown:
			return f.overlaps(r.Start, r.End, connectGrace)
		}
		return false
	case phaseDatagram:
		return f.overlaps(r.Start, r.End, datagramGrace)
	}
	return false
}

// handshakeTime is how long the three segments that make a connection may take on a busy machine:
// at a load of 50, 1.6 s were seen.
const handshakeTime = 5 * time.Second

// halfOpen reports whether r may have come up at its client alone: f took the last segment of the
// handshake with it. The server's kernel then drops what it began as soon as it learns that the
// client cannot be reached (an ICMP error, or no route for the SYN-ACK that it repeats), and
// answers the client's data with a reset. Every network does so.
func (f fault) halfOpen(r record) bool {
	return r.resetSilent() && f.Start.Before(r.Start.Add(handshakeTime))
}

// unreachable reports whether r did not come up because a neighbour was not found, by its client
// or, as halfOpen says, by its server. exnet gives that up after three seconds, in which a machine
// may be too busy to answer; so it is as with datagrams: it should be rare.
func (r record) unreachable() bool {
	if r.Phase == phaseConnect {
		return strings.Contains(strings.ToLower(r.Err), "no route to host") || r.Kind == "curl" && strings.Contains(r.Err, "exit status 7")
	}
	return r.resetSilent()
}

// resetSilent reports whether the server answered r with a reset, and nothing before.
func (r record) resetSilent() bool {
	return r.Phase == phaseData && r.Silent && strings.Contains(r.Err, "onnection reset")
}

// judge returns the fault that excuses r, if there is one.
func judge(r record, faults []fault) (fault, bool) {
	for _, f := range faults {
		if f.excuses(r) {
			return f, true
		}
	}
	return fault{}, false
}

// livedThrough reports whether r is a connection that outlived f, the end of a daemon.
func (f fault) livedThrough(r record) bool {
	since := r.Direct
	if since.IsZero() {
		since = r.Start
	}
	return (f.Kind == nodeKill || f.Kind == nodeRestart) && f.hits(r) && since.Before(f.Start) && f.Start.Before(r.End)
}

func TestJudge(t *testing.T) {
	longtest.Skip(t)
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	data := record{Kind: "ds", Phase: phaseData, Client: 1, Server: 2, Program: roleServer, Start: at(10), End: at(20), Err: "reset"}
	with := func(change func(*record)) record { r := data; change(&r); return r }
	half := with(func(r *record) { r.Silent, r.Err = true, "read: connection reset by peer" })
	connect := with(func(r *record) { r.Phase = phaseConnect })
	lost := with(func(r *record) { r.Phase = phaseDatagram })
	for _, tt := range []struct {
		name string
		r    record
		f    fault
		want bool
	}{
		{"its server is killed", data, fault{programKill, 2, roleServer, at(15), at(16)}, true},
		{"its client is killed", data, fault{programKill, 1, roleClient, at(15), time.Time{}}, true},
		{"another program", data, fault{programKill, 2, "redis", at(15), at(16)}, false},
		{"the server of the client's node", data, fault{programKill, 1, roleServer, at(15), at(16)}, false},
		{"afterwards", data, fault{programKill, 2, roleServer, at(21), at(22)}, false},
		{"long before", data, fault{programKill, 2, roleServer, at(-2), at(-1)}, false},
		{"its node is killed", data, fault{nodeKill, 2, "", at(15), at(16)}, false},
		{"its node is stopped", data, fault{nodeCut, 1, "", at(15), at(16)}, false},
		{"the handshake is cut", half, fault{nodeKill, 1, "", at(10), at(12)}, true},
		{"the handshake is cut, another error", with(func(r *record) { r.Silent = true; r.Err = "timeout" }), fault{nodeKill, 1, "", at(10), at(12)}, false},
		{"the handshake is over", half, fault{nodeKill, 1, "", at(16), at(17)}, false},
		{"data has come", data, fault{nodeKill, 1, "", at(10), at(12)}, false},
		{"corrupt", with(func(r *record) { r.Corrupt = true }), fault{programKill, 2, roleServer, at(15), at(16)}, false},
		{"connecting to a node that was killed", connect, fault{nodeKill, 2, "", at(15), at(16)}, true},
		{"connecting from it", connect, fault{nodeKill, 1, "", at(15), at(16)}, true},
		{"another node", connect, fault{nodeKill, 3, "", at(15), at(16)}, false},
		{"a short stop", connect, fault{nodeStop, 1, "", at(15), at(16)}, false},
		{"soon after", connect, fault{ifDown, 1, "", at(2), at(6)}, true},
		{"long after", connect, fault{ifDown, 1, "", at(-2), at(-1)}, false},
		{"a datagram", lost, fault{nodeStop, 1, "", at(15), at(16)}, true},
		{"a datagram of another", lost, fault{nodeStop, 4, "", at(15), at(16)}, false},
	} {
		if _, got := judge(tt.r, []fault{tt.f}); got != tt.want {
			t.Errorf("%s: excused: %v, want %v", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name string
		r    record
		want bool
	}{
		{"a half-open one", half, true},
		{"one that had come up", data, false},
		{"a half-open one that timed out", with(func(r *record) { r.Silent, r.Err = true, "timeout" }), false},
		{"no neighbour", with(func(r *record) { r.Phase, r.Err = phaseConnect, "connect: no route to host" }), true},
		{"refused", with(func(r *record) { r.Phase, r.Err = phaseConnect, "connection refused" }), false},
	} {
		if got := tt.r.unreachable(); got != tt.want {
			t.Errorf("%s: not found: %v, want %v", tt.name, got, tt.want)
		}
	}
}
