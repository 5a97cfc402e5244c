package paths

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"exnet/internal/netns"
	"exnet/test/numbered"
	"exnet/test/testlab"
)

// hang is when a program counts as hung, beside the time that it is given; disturbedHang is when
// links are cut, and a connection may wait for what TCP repeats more and more seldom. Nothing else
// depends on the time.
const hang, disturbedHang = 5 * time.Minute, 20 * time.Minute

// killHung kills a program that hangs, unless it is stopped.
func (l *lab) killHung(p *testlab.Process) *time.Timer {
	d := hang
	if l.o.Disturb {
		d = disturbedHang
	}
	return time.AfterFunc(l.o.Time+d, func() { _ = p.Signal(syscall.SIGKILL) })
}

// numbers is how many numbers of connections a row uses at most.
const numbers = 1 << 16

// firstConn returns the first of numbers that no recent row has used: bytes of one are foreign.
func (l *lab) firstConn() int {
	l.rows++
	return l.rows % ((numbered.MaxConn + 1) / numbers) * numbers
}

// noteFault keeps what a line says is wrong.
func (r *Row) noteFault(line string) {
	what := numbered.ParseFault(line)
	if what == "" {
		return
	}
	if r.kinds == nil {
		r.kinds = make(map[failure]int)
	}
	r.kinds[failureOf(what)]++
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, what)
	}
}

// runRow moves words over a path.
func (l *lab) runRow(p path, conns, load int) Row {
	l.t.Helper()
	r := Row{Path: l.titleOf(p), Programs: p.programsOf(), Conns: conns, Load: load}
	what := fmt.Sprintf("%s, %s, %d connections, %d spinning", r.Path, r.Programs, conns, load)
	for range load {
		spin := l.startProgram("spinning", l.ownNS, nil, "/bin/sh", "-c", "while :; do :; done")
		defer spin.Kill()
	}
	if p.client == portsC {
		quiet := l.disturbNodes(&r)
		l.portRow(p, &r)
		quiet()
	} else {
		// On a machine that is too busy for any connection to leave TCP in time, again, with twice
		// as much of it.
		begun, d := time.Now(), l.o.Time
		for l.runClient(p, &r, d); conns > 1 && r.Share < least && r.Wrong == 0 && time.Since(begun) < hang; l.runClient(p, &r, d) {
			d = max(d, min(2*d, longest))
		}
	}
	l.t.Logf("%s: %d bytes, %.0f %% this way, %.1f s", what, r.Bytes, 100*r.Share, r.Took.Seconds())
	if r.Wrong > 0 {
		l.t.Errorf("%s: %d ends of %d connections went wrong:\n%s%s", what, r.Wrong, r.Sum.Conns, strings.Join(r.Faults, "\n"), l.nodesSay())
	}
	if r.Bytes == 0 || conns > 1 && r.Share < least {
		l.t.Errorf("%s: %.1f %% of %d bytes went this way", what, 100*r.Share, r.Bytes)
	}
	return r
}

// nodesSay returns what the nodes have logged, and how many connections they have reset, since they
// began.
func (l *lab) nodesSay() string {
	if !l.place.nodes {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{"relay.lost", "relay.breaches"} {
		fmt.Fprintf(&b, "\n%s: %d", name, l.sumCounter(name))
	}
	for _, n := range l.nodes {
		said := n.Log.String()
		fmt.Fprintf(&b, "\n%s said:\n%s", n.Name, said[max(0, len(said)-maxSaid):])
	}
	return b.String()
}

// maxSaid is how much of a node's log is shown in bytes.
const maxSaid = 4 << 10

// runClient runs a client of a path, which makes new connections for d.
func (l *lab) runClient(p path, r *Row, d time.Duration) {
	l.t.Helper()
	server := l.startedServer(p)
	went := l.countWay(p.way)
	begun := time.Now()
	fault := func(line string) { r.noteFault(line) }
	first := l.firstConn()
	ns, argv := l.commandOf(p.client, 0, "dial", l.serverAddress(p), strconv.Itoa(r.Conns), strconv.FormatInt(d.Milliseconds(), 10),
		strconv.FormatInt(l.o.Pause.Milliseconds(), 10), strconv.FormatUint(l.o.Seed+uint64(l.rows), 10), strconv.Itoa(first))
	client := l.startProgram(r.Programs, ns, offerEnv(l.rows), argv...)
	defer client.Kill()
	l.awaitLine(client, "dialing") // a node that is stopped lets none begin
	quiet := l.disturbNodes(r)
	ours, _ := numbered.ParseSum(l.awaitLine(client, "sum ", fault))
	fmt.Fprintln(server.In, ours.Conns) // a server that has ended says nothing more
	theirs, _ := numbered.ParseSum(l.awaitLine(server, "sum ", fault))
	quiet()
	sum := numbered.Sum{Conns: ours.Conns, Bytes: ours.Bytes + theirs.Bytes, Wrong: ours.Wrong + theirs.Wrong}
	r.Share = went(sum)
	r.Sum.Add(sum)
	r.Took += time.Since(begun)
}

// offerEnv is when the client's connections are offered to go direct: with their first send, or
// before, and then they wait for it. So bytes go over TCP first, or do not.
func offerEnv(row int) []string {
	if row%2 == 0 {
		return []string{"EXNET_DS_SENDS=1"}
	}
	return []string{"EXNET_DS_SENDS=0", "EXNET_DS_BYTES=0", "EXNET_DS_WAIT=2"}
}

// serverPort is that of the server of a path.
func (p path) serverPort() int {
	n := plainPort
	if p.way == relay {
		n = relayPort
	}
	switch p.server {
	case plainC:
		return n
	case unchangedC:
		return n + 1
	case goDirect:
		return n + 2
	}
	return n + 3
}

// serverAddress is that of the server of a path.
func (l *lab) serverAddress(p path) string {
	if l.place.nodes {
		return fmt.Sprintf("10.2.0.2:%d", p.serverPort())
	}
	return fmt.Sprintf("127.0.0.1:%d", p.serverPort())
}

// startedServer returns the server of a path, started before or now.
func (l *lab) startedServer(p path) *testlab.Process {
	l.t.Helper()
	address := l.serverAddress(p)
	if s := l.servers[address]; s != nil {
		return s
	}
	ns, argv := l.commandOf(p.server, 1, "serve", address)
	s := l.startProgram(string(p.server)+" server", ns, nil, argv...)
	l.awaitLine(s, "listening")
	l.servers[address] = s
	return s
}

// commandOf returns how a program is run at the client's end, 0, or the server's, 1, and where.
func (l *lab) commandOf(e end, side int, args ...string) (ns *netns.NS, argv []string) {
	ns = l.spaces[side]
	switch e {
	case plainC:
		return ns, append([]string{l.toolPath(string(unchangedC))}, args...)
	case goDirect:
		return ns, append([]string{l.toolPath(string(goDirect))}, args...)
	}
	argv = []string{l.toolPath("exn-run"), "--loopback"}
	if l.place.nodes {
		argv = []string{l.toolPath("exn-run"), "--dir", l.dirs[side], "--node", strconv.Itoa(1 + side)}
		ns = l.ownNS
	}
	if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" { // such as one with sanitizers
		argv = append(argv, "--library", library)
	}
	return ns, append(append(argv, "--", l.toolPath(string(e))), args...)
}
