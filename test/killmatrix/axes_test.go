package killmatrix

import (
	"fmt"
	"slices"
	"syscall"
)

// path is how two programs are connected.
type path struct {
	name   string
	kind   string   // of the peers' sockets
	direct bool     // they become direct
	fabric bool     // over exn0, between two daemons; else over the loopback interface with a broker
	python []string // flags of exn-run; nil: Go programs without it
}

var paths = []path{
	{name: "tcp", kind: "tcp", fabric: true},
	{name: "go", kind: "direct", direct: true, fabric: true},
	{name: "run", kind: "tcp", direct: true, fabric: true, python: []string{}},
	{name: "run-loopback", kind: "tcp", direct: true, python: []string{"--loopback"}},
	{name: "go-loopback", kind: "direct", direct: true},
}

// victim is the process that is killed or stopped.
type victim int

const (
	client victim = iota + 1
	server
	clientDaemon
	serverDaemon
	embeddedBroker
)

func (v victim) String() string {
	return [...]string{"?", "client", "server", "client's daemon", "server's daemon", "broker"}[v]
}

func (v victim) program() bool { return v == client || v == server }

func (p path) victims() []victim {
	if p.fabric {
		return []victim{client, server, clientDaemon, serverDaemon}
	}
	return []victim{client, server, embeddedBroker}
}

// moment is when that happens.
type moment int

const (
	setUp moment = iota + 1
	eager
	rendezvous
	midRing
	teardown
	returning // of direct sockets
)

var moments = []moment{setUp, eager, rendezvous, midRing, teardown, returning}

func (m moment) String() string {
	return [...]string{"?", "set-up", "eager", "rendezvous", "mid-ring", "teardown", "returning"}[m]
}

// full: the client sleeps in its write, and the server does not read.
func (m moment) full() bool { return m == midRing || m == returning }

// cell is one of the matrix.
type cell struct {
	path   path
	moment moment
	victim victim
	signal syscall.Signal // SIGKILL or SIGSTOP
}

func (c cell) sig() string {
	if c.signal == syscall.SIGSTOP {
		return "stop"
	}
	return "kill"
}

func (c cell) String() string {
	return fmt.Sprintf("%s/%v/%v/%s", c.path.name, c.moment, c.victim, c.sig())
}

// outcome is what the programs that are left have to see.
type outcome int

const (
	// ends: end of file or a reset, within a second.
	ends outcome = iota + 1
	// waits: calls end at their deadlines; it goes on, nothing being lost, when the
	// victim does or has been started again.
	waits
	// carriesOn: it has not noticed.
	carriesOn
)

func (c cell) outcome() outcome {
	switch {
	case c.victim.program() && c.signal == syscall.SIGKILL:
		return ends
	case c.victim.program():
		return waits
	case c.path.direct && c.moment != setUp && c.moment != returning, !c.path.fabric:
		return carriesOn
	}
	return waits
}

// cells lists those of a path.
func cells(p path) (all []cell) {
	for _, m := range moments {
		if m == returning && !p.direct {
			continue
		}
		for _, v := range p.victims() {
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				all = append(all, cell{p, m, v, s})
			}
		}
	}
	return all
}

// inCI is the reduced form: of each path every victim with both signals, at another moment
// each, so that all moments have all of them over the paths. While bytes return to TCP, one
// of two Go programs is killed.
func (c cell) inCI() bool {
	at := slices.IndexFunc(paths, func(p path) bool { return p.name == c.path.name })
	if c.moment == returning {
		return c.victim.program() && c.path.python == nil && c.signal == syscall.SIGKILL && (int(c.victim)+at)%2 == 0
	}
	n := int(c.moment) + 2*int(c.victim) + at
	if c.signal == syscall.SIGSTOP {
		n += 2
	}
	return n%int(teardown) == 0
}
