package paths

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"exnet/fabric/link/ofi"
	"exnet/test/numbered"
)

// place is where programs run.
type place struct {
	name  string
	nodes bool     // two of them; else the ends meet on the loopback interface
	hosts bool     // each node is on a host of its own
	keys  bool     // the nodes authenticate each other
	flags []string // of both nodes
	link  string   // by which they are to be linked, as the status has it
	need  func(context.Context) error
	paths []path
}

// path is a way of bytes in a place.
type path struct {
	name   string
	client end
	server end
	way    way
	conns  []int // how many at a time
	more   []int // in the long form only, where another path says the same
}

// end is a program at an end of connections.
type end string

const (
	plainC     end = "c, plain" // plain TCP
	unchangedC end = "c"        // under exn-run
	goDirect   end = "go"       // package directsockets
	exnGo      end = "exn-go"   // package net, built by exn-go, under exn-run
	portsC     end = "ports"    // librma2 and libvelo2
)

// way is the way that bytes take.
type way int

const (
	segments  way = iota // memory that both ends share, past TCP
	relay                // nodes carry them: what the segment of either end holds
	exn0                 // TCP
	ownPorts             // ports of one node
	nodePorts            // ports of both nodes
)

// Ports of servers: the nodes' rule has those from relayPort on go through the fabric.
const (
	plainPort = 7000
	relayPort = 7100
)

// Numbers of connections: all, and parts of these. A node has too few ports for 200. With loaded
// connections, as many processes spin beside them as there are spinners.
var (
	all  = []int{1, 15, loaded, 200}
	few  = []int{1, 15}
	some = []int{15}
	busy = []int{loaded}
	most = []int{200}
	none []int
)

const (
	loaded   = 60
	spinners = 2
)

// relayedPaths are the paths between nodes that do not share memory; main: in the short form, relay
// has so many connections at a time, and rest are in the long form.
func relayedPaths(main, rest []int, more ...path) []path {
	return append([]path{
		{"relay", unchangedC, unchangedC, relay, main, rest},
		{"exn0", plainC, plainC, exn0, some, most},
		{"ports", portsC, portsC, nodePorts, some, busy},
	}, more...)
}

var places = []place{
	{name: "loopback", paths: []path{
		{"segment", unchangedC, unchangedC, segments, all, none},
		{"segment", goDirect, goDirect, segments, all, none},
		{"segment", unchangedC, goDirect, segments, busy, some},
		{"segment", goDirect, unchangedC, segments, busy, some},
		{"segment", exnGo, exnGo, segments, busy, some},
		{"segment", unchangedC, exnGo, segments, some, busy},
	}},
	{name: "host", nodes: true, link: "shm", paths: []path{
		{"segment", unchangedC, unchangedC, segments, some, []int{1, loaded, 200}},
		{"segment", goDirect, unchangedC, segments, some, busy},
		{"relay", unchangedC, unchangedC, relay, all, none},
		{"relay", unchangedC, goDirect, relay, busy, some},
		{"exn0", plainC, plainC, exn0, []int{1, loaded, 200}, some},
		{"ports of a node", portsC, portsC, ownPorts, few, busy},
		{"ports", portsC, portsC, nodePorts, few, busy},
	}},
	{name: "host, bad links", nodes: true, link: "wire", flags: []string{"--faults", "drop=0.005,corrupt=0.002,duplicate=0.002,reorder=0.002,seed=1"},
		paths: relayedPaths(some, []int{1, loaded, 200})},
	{name: "hosts", nodes: true, hosts: true, link: "stream", flags: []string{"--plaintext"}, paths: relayedPaths(busy, []int{1, 15, 200})},
	{name: "hosts, TLS", nodes: true, hosts: true, keys: true, link: "stream", paths: relayedPaths(all, none,
		path{"relay", goDirect, goDirect, relay, busy, some},
		path{"relay", exnGo, unchangedC, relay, some, busy},
	)},
	{name: "hosts, libfabric", nodes: true, hosts: true, keys: true, link: "ofi:tcp", flags: []string{"--link", "ofi:tcp"}, paths: relayedPaths(busy, []int{1, 15, 200}),
		need: func(ctx context.Context) error { return ofi.Check(ctx, "tcp") }},
}

// needPlace skips the test if the place cannot be, else it is brought up.
func (l *lab) needPlace(p place) {
	l.t.Helper()
	if p.need != nil {
		if err := p.need(l.t.Context()); errors.Is(err, ofi.ErrMissing) {
			l.t.Skip(err)
		} else if err != nil {
			l.t.Fatal(err)
		}
	}
	if l.place = p; len(l.chosenPaths()) == 0 {
		l.t.Skip("none of its paths is chosen")
	}
	l.bringUp(p)
}

// titleOf is a path's name in the table.
func (l *lab) titleOf(p path) string { return l.place.name + ": " + p.name }

// chosenPaths are the paths of Options.Only, with the numbers of connections of that.
func (l *lab) chosenPaths() (all []path) {
	for _, p := range l.place.paths {
		name := l.titleOf(p) + ", " + p.programsOf()
		if l.o.Only != nil && !l.o.Only.MatchString(name) {
			other := func(n int) bool { return !l.o.Only.MatchString(fmt.Sprintf("%s, %d", name, n)) }
			p.conns, p.more = slices.DeleteFunc(slices.Clone(p.conns), other), slices.DeleteFunc(slices.Clone(p.more), other)
		}
		if len(p.conns)+len(p.more) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func (p path) programsOf() string { return string(p.client) + " to " + string(p.server) }

// countWay begins to count what goes a way; the function returns the share of it.
func (l *lab) countWay(w way) func(numbered.Sum) float64 {
	name := "exn0"
	if !l.place.nodes {
		name = "lo"
	}
	var before uint64
	if w == relay {
		before = l.sumCounter("relay.bytes_sent")
	} else {
		before = l.sentBytes(name)
	}
	return func(s numbered.Sum) float64 {
		switch w {
		case relay:
			return shareOf(l.sumCounter("relay.bytes_sent")-before, s)
		case exn0:
			return shareOf(l.sentBytes(name)-before, s)
		}
		return 1 - shareOf(l.sentBytes(name)-before, s)
	}
}

// Rows is how many rows the long form has.
func Rows() (n int) { return RowsOf(nil) }

// RowsOf is how many rows the long form of the paths of Options.Only has.
func RowsOf(only *regexp.Regexp) (n int) {
	for _, p := range places {
		l := &lab{place: p, o: Options{Only: only}}
		for _, path := range l.chosenPaths() {
			n += len(path.connCounts(true))
		}
	}
	return n
}

// connCounts are how many connections a path's rows have at a time.
func (p path) connCounts(long bool) []int {
	if long {
		return slices.Sorted(slices.Values(slices.Concat(p.conns, p.more)))
	}
	return p.conns
}
