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
	relay  bool     // each node is on a host of its own, and carries direct sockets (--direct)
}

var paths = []path{
	{name: "tcp", kind: "tcp", fabric: true},
	{name: "go", kind: "direct", direct: true, fabric: true},
	{name: "run", kind: "tcp", direct: true, fabric: true, python: []string{}},
	{name: "run-loopback", kind: "tcp", direct: true, python: []string{"--loopback"}},
	{name: "go-loopback", kind: "direct", direct: true},
	{name: "go-relay", kind: "direct", direct: true, fabric: true, relay: true},
	{name: "run-relay", kind: "tcp", direct: true, fabric: true, python: []string{}, relay: true},
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
	returning // of direct sockets: some of the bytes are back on TCP
	returned  // all of them are
	passed    // as returning, because the receiver's descriptor was passed on
)

var moments = []moment{setUp, eager, rendezvous, midRing, teardown, returning, returned, passed}

func (m moment) String() string {
	return [...]string{"?", "set-up", "eager", "rendezvous", "mid-ring", "teardown", "returning", "returned", "passed on"}[m]
}

// full: the client sleeps in its write, and the server does not read.
func (m moment) full() bool { return m == midRing || m.left() }

// left: the bytes go by TCP again.
func (m moment) left() bool { return m == returning || m == returned || m == passed }

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
	// cut: both have a reset, as what the daemon carried is lost. Once the bytes go by TCP again,
	// nothing is.
	cut
)

func (c cell) outcome() outcome {
	switch {
	case c.victim.program() && c.signal == syscall.SIGKILL:
		return ends
	case c.victim.program():
		return waits
	case !c.path.fabric, c.path.direct && !c.path.relay && c.moment != setUp && !c.moment.left():
		return carriesOn
	case c.path.relay && c.signal == syscall.SIGKILL && c.moment != setUp && !c.moment.left():
		return cut
	}
	return waits
}

// cells lists those of a path.
func cells(p path) (all []cell) {
	for _, m := range moments {
		if m.left() && !p.direct || m == returned && p.relay { // a ring between hosts holds more than TCP does
			continue
		}
		for _, v := range p.victims() {
			if m == passed && p.relay && !v.program() {
				continue // it is reset or goes on, by how far each direction has come
			}
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				all = append(all, cell{p, m, v, s})
			}
		}
	}
	return all
}

// inCI is the reduced form: of each path every victim with both signals, at another moment each, so
// that all moments have all of them over the paths. Of those at which a direction has left, and of
// the nodes' relay, it has a few.
func (c cell) inCI() bool {
	at := slices.IndexFunc(paths, func(p path) bool { return p.name == c.path.name })
	kill := c.signal == syscall.SIGKILL
	switch {
	case c.path.relay:
		return kill && (c.path.python == nil && c.moment == rendezvous && c.victim == serverDaemon ||
			c.path.python != nil && c.moment == returning && c.victim == client)
	case c.moment.left():
		return kill && c.victim.program() && c.path.python == nil && (int(c.victim)+at+int(c.moment))%2 == 0
	}
	n := int(c.moment) + 2*int(c.victim) + at
	if c.signal == syscall.SIGSTOP {
		n += 2
	}
	return n%int(teardown) == 0
}
