package paths

import (
	"context"
	"errors"
	"slices"

	"exnet/fabric/link/ofi"
	"exnet/internal/numbered"
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

// Numbers of connections: of the main paths, and of what differs from those in one thing. A node
// has too few ports for 200. With loaded connections, as many processes spin beside them as there
// are spinners.
var (
	counts     = []int{1, 15, loaded, 200}
	countsSome = []int{1, 15, loaded}
	others     = []int{15, loaded}
	most       = []int{200}
)

const (
	loaded   = 60
	spinners = 2
)

// relayed are the paths between nodes that do not share memory.
func relayed(more ...path) []path {
	return append([]path{
		{"relay", unchangedC, unchangedC, relay, counts},
		{"exn0", plainC, plainC, exn0, most},
		{"ports", portsC, portsC, nodePorts, others},
	}, more...)
}

var places = []place{
	{name: "loopback", paths: []path{
		{"segment", unchangedC, unchangedC, segments, counts},
		{"segment", goDirect, goDirect, segments, counts},
		{"segment", unchangedC, goDirect, segments, others},
		{"segment", goDirect, unchangedC, segments, others},
		{"segment", exnGo, exnGo, segments, others},
		{"segment", unchangedC, exnGo, segments, others},
	}},
	{name: "host", nodes: true, link: "shm", paths: []path{
		{"segment", unchangedC, unchangedC, segments, counts},
		{"segment", goDirect, unchangedC, segments, others},
		{"relay", unchangedC, unchangedC, relay, counts},
		{"relay", unchangedC, goDirect, relay, others},
		{"exn0", plainC, plainC, exn0, counts},
		{"ports of a node", portsC, portsC, ownPorts, countsSome},
		{"ports", portsC, portsC, nodePorts, countsSome},
	}},
	{name: "host, bad links", nodes: true, link: "wire", flags: []string{"--faults", "drop=0.005,corrupt=0.002,duplicate=0.002,reorder=0.002,seed=1"}, paths: relayed()},
	{name: "hosts", nodes: true, hosts: true, link: "stream", flags: []string{"--plaintext"}, paths: relayed()},
	{name: "hosts, TLS", nodes: true, hosts: true, keys: true, link: "stream", paths: relayed(
		path{"relay", goDirect, goDirect, relay, others},
		path{"relay", exnGo, unchangedC, relay, others},
	)},
	{name: "hosts, libfabric", nodes: true, hosts: true, keys: true, link: "ofi:tcp", flags: []string{"--link", "ofi:tcp"}, paths: relayed(),
		need: func(ctx context.Context) error { return ofi.Check(ctx, "tcp") }},
}

// needed skips the test if the place cannot be, else it is brought up.
func (l *lab) needed(p place) {
	l.t.Helper()
	if p.need != nil {
		if err := p.need(l.t.Context()); errors.Is(err, ofi.ErrMissing) {
			l.t.Skip(err)
		} else if err != nil {
			l.t.Fatal(err)
		}
	}
	if l.place = p; len(l.chosen()) == 0 {
		l.t.Skip("none of its paths is chosen")
	}
	l.up(p)
}

// title is a path's name in the table.
func (l *lab) title(p path) string { return l.place.name + ": " + p.name }

// chosen are the paths of Options.Only.
func (l *lab) chosen() []path {
	return slices.DeleteFunc(slices.Clone(l.place.paths), func(p path) bool {
		return l.o.Only != nil && !l.o.Only.MatchString(l.title(p)+", "+p.programs())
	})
}

func (p path) programs() string { return string(p.client) + " to " + string(p.server) }

// count begins to count what goes a way; the function returns the share of it.
func (l *lab) count(w way) func(numbered.Sum) float64 {
	name := "exn0"
	if !l.place.nodes {
		name = "lo"
	}
	var before uint64
	if w == relay {
		before = l.counter("relay.bytes_sent")
	} else {
		before = l.sent(name)
	}
	return func(s numbered.Sum) float64 {
		switch w {
		case relay:
			return share(l.counter("relay.bytes_sent")-before, s)
		case exn0:
			return share(l.sent(name)-before, s)
		}
		return 1 - share(l.sent(name)-before, s)
	}
}

// Rows is how many rows there are.
func Rows() (n int) {
	for _, p := range places {
		for _, path := range p.paths {
			n += len(path.conns)
		}
	}
	return n
}
