package killmatrix

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/control"
)

const (
	// soon is within which a kill has to be seen, and a deadline met, and for which
	// nothing unrelated may stand still.
	soon = time.Second
	// callLimit is the deadline of each call.
	callLimit = 250 * time.Millisecond
)

// slowError says that something took longer than soon. On a machine with other work that
// may be chance, so the cell is tried again.
type slowError struct{ error }

// result is a line of the table.
type result struct {
	cell  cell
	proof string        // of the moment
	saw   string        // what was left of the connection's two ends
	after time.Duration // how long after the signal it saw that; 0: it does not apply
	gap   time.Duration // longest time without a byte of bystanders that nothing should stop
	gapOf string        // which
	again time.Duration // until a new connection was served (again)
}

// run is one cell being run.
type run struct {
	w    *world
	cell cell
	conn connection
	// spare is a second one, to be made while the victim is down.
	spare connection
	held  map[string]bool // segments of the connection
	at    int64           // when the signal was sent, CLOCK_MONOTONIC
	slow  error           // slowError: it was right, and too late
	// patience is how many times as long as on a quiet machine things may take.
	patience time.Duration
	result
}

// within notes that something took longer than it may. Time that the machine stood still
// is not counted.
func (r *run) within(took, limit time.Duration, format string, args ...any) {
	if still := r.w.pulse.worst(); took > r.patience*limit+2*still {
		r.slow = slowError{fmt.Errorf("%s took %v (the machine stood still for %v)", fmt.Sprintf(format, args...), took, still)}
	}
}

// runCell runs a cell, in which all may take patience times as long as on a quiet machine. The
// world is as before then, unless there is an error.
func runCell(w *world, c cell, patience time.Duration) (result, error) {
	r := &run{w: w, cell: c, patience: patience, result: result{cell: c}}
	r.conn, r.spare = w.connection(), w.connection()
	if c.outcome() != ends {
		r.conn.limit = int(callLimit.Milliseconds())
	}
	var err error
	if r.proof, err = r.reach(); err != nil {
		return r.result, fmt.Errorf("getting there: %w", err)
	}
	if r.held, err = segments(w.client.pid()); err != nil {
		return r.result, err
	}
	other, err := segments(w.server.pid())
	if err != nil {
		return r.result, err
	}
	for i := range r.held {
		if !other[i] && c.moment != setUp {
			delete(r.held, i)
		}
	}
	if w.path.direct && len(r.held) == 0 && c.moment != setUp {
		return r.result, errors.New("the two ends have no segment in common")
	}
	if err := w.reset(); err != nil {
		return r.result, err
	}
	for _, p := range []*remote{r.conn.client, r.conn.server} {
		if p == r.conn.server && !r.conn.accepted {
			continue
		}
		if _, err := p.stat(r.conn.id(p), true); err != nil {
			return r.result, err
		}
	}
	w.pulse.reset()
	if err := r.hit(); err != nil {
		return r.result, err
	}
	switch c.outcome() {
	case ends:
		err = r.seeEnd()
	case waits:
		err = r.seeWait()
	default:
		if err = r.wake(); err == nil {
			err = r.seeNothing()
		}
	}
	if err != nil {
		return r.result, err
	}
	if c.victim != server || c.signal == syscall.SIGSTOP {
		if _, err := r.spare.server.ask(request{Op: "unlisten", ID: r.spare.lid}); err != nil {
			return r.result, err
		}
	}
	if err := r.freed(); err != nil {
		return r.result, err
	}
	return r.result, r.slow
}

// hit sends the signal, and waits until it has done its work.
func (r *run) hit() error {
	pid := r.victimPID()
	r.at = monotonic()
	if err := unix.Kill(pid, r.cell.signal); err != nil {
		return err
	}
	if r.cell.signal == syscall.SIGSTOP {
		return wait("a stopped process", func() (bool, error) { return processState(pid) == 'T', nil })
	}
	switch r.cell.victim {
	case client:
		<-r.w.client.done
	case server:
		<-r.w.server.done
	case clientDaemon, serverDaemon:
		<-r.w.daemons[r.victimNode()].done
	default:
		return wait("the end of the broker", func() (bool, error) { return gone(pid), nil })
	}
	return nil
}

func (r *run) victimPID() int {
	switch r.cell.victim {
	case client:
		return r.w.client.pid()
	case server:
		return r.w.server.pid()
	case clientDaemon, serverDaemon:
		return r.w.daemons[r.victimNode()].pid()
	}
	return r.w.pid
}

// survivor is the end that is left when a program is the victim.
func (r *run) survivor() *remote {
	if r.cell.victim == client {
		return r.conn.server
	}
	return r.conn.client
}

// wake has the server do what it was not to do before the moment, unless it is the victim.
func (r *run) wake() error {
	c := &r.conn
	if r.cell.victim == server {
		return nil
	}
	switch r.cell.moment {
	case setUp:
		if !c.accepted {
			if err := c.accept(); err != nil {
				return err
			}
		}
		return errors.Join(c.read(c.server, false), c.write(c.server, 64, time.Millisecond))
	case midRing:
		return c.read(c.server, false)
	}
	return nil
}

// seeEnd: the victim was killed; the other end hears of it in both directions.
func (r *run) seeEnd() error {
	if err := r.wake(); err != nil {
		return err
	}
	woken := monotonic()
	left := r.survivor()
	if r.cell.moment != teardown && r.cell.victim == client {
		// Who only reads has an end of file; writing has to fail, too.
		if err := r.conn.write(left, 64, time.Millisecond); err != nil {
			return err
		}
	}
	var s stat
	if err := wait("the end of both directions at the "+left.name, func() (bool, error) {
		var err error
		s, err = r.conn.stat(left)
		return s.RX.End != "" && s.TX.End != "", err
	}); err != nil {
		return fmt.Errorf("%w: %+v", err, s)
	}
	r.saw = s.RX.End + ", " + s.TX.End
	for dir, w := range map[string]way{"reading": s.RX, "writing": s.TX} {
		switch w.End {
		case "end of file", "reset", "pipe", "finished":
		default:
			return fmt.Errorf("%s ended with: %s", dir, w.End)
		}
		if w.Bad != 0 {
			return fmt.Errorf("%d bytes that were not sent", w.Bad)
		}
	}
	r.after = time.Duration(s.RX.EndAt - r.at)
	if r.cell.moment == setUp || r.cell.moment == midRing {
		r.after = time.Duration(s.RX.EndAt - max(r.at, min(woken, s.RX.EndAt)))
	}
	if s.TX.End != "finished" {
		r.after = max(r.after, time.Duration(s.TX.EndAt-max(r.at, min(woken, s.TX.EndAt))))
	}
	if err := r.conn.close(left); err != nil {
		return err
	}
	if err := r.others(); err != nil {
		return err
	}
	if err := r.revive(); err != nil {
		return err
	}
	r.within(r.after, soon, "the news to the %s", left.name)
	return nil
}

// seeWait: calls end at their deadlines, and afterwards nothing is lost.
func (r *run) seeWait() error {
	if err := r.wake(); err != nil {
		return err
	}
	// Those that can be asked.
	left := []*remote{r.conn.client, r.conn.server}
	if r.cell.victim.program() {
		left = []*remote{r.survivor()}
	}
	if r.cell.moment == teardown && r.cell.victim != server {
		// What still fits has to be written first.
		if err := r.conn.write(r.conn.server, 64<<10, 0); err != nil {
			return err
		}
	}
	r.saw = "deadline"
	for _, p := range left {
		var w way
		direct := uint64(0)
		err := wait("a deadline at the "+p.name, func() (bool, error) {
			var err error
			if direct, err = r.direct(p); err != nil || direct > 0 {
				return true, err
			}
			s, err := r.conn.stat(p)
			w = s.RX
			if r.cell.moment == midRing && p == r.conn.client || r.cell.moment == teardown && p == r.conn.server {
				w = s.TX
			}
			if s.RX.End != "" && r.cell.moment != teardown || s.TX.End != "" && s.TX.End != "finished" {
				return false, fmt.Errorf("it has ended: %+v", s)
			}
			// One that began when nothing came any more.
			return w.Timeouts > 0 && w.Timeout > r.at+int64(callLimit), err
		})
		if err != nil {
			return fmt.Errorf("%w: %+v", err, w)
		}
		if direct > 0 {
			r.saw = "deadline, but " + p.name + " direct"
			continue
		}
		r.after = max(r.after, time.Duration(w.Timeout-r.at))
		r.within(time.Duration(w.Longest), callLimit+soon, "a call at the %s", p.name)
	}
	if r.cell.moment == setUp && !r.cell.victim.program() {
		if err := r.dialInVain(); err != nil {
			return err
		}
	}
	if err := r.others(); err != nil {
		return err
	}
	if err := r.revive(); err != nil {
		return err
	}
	if r.cell.victim == server {
		if err := r.goOn(); err != nil {
			return err
		}
	}
	if err := r.conn.finish(); err != nil {
		return fmt.Errorf("when it went on: %w", err)
	}
	r.saw += "; went on"
	return nil
}

// direct is how many bytes an end has received directly of a connection that was being
// set up when a daemon went. If the offer was with the server's broker already it may be
// claimed, and then no daemon plays a part in what was sent after that.
func (r *run) direct(p *remote) (uint64, error) {
	if r.cell.moment != setUp || !r.w.path.direct || r.cell.victim.program() {
		return 0, nil
	}
	e, err := p.entry(r.conn.caddr, r.conn.saddr)
	if e == nil {
		return 0, err
	}
	return e.n[receivedDirect], err
}

// goOn has a server that was stopped do what it was not to do before the moment.
func (r *run) goOn() error {
	v := r.cell.victim
	defer func() { r.cell.victim = v }()
	r.cell.victim = client
	return r.wake()
}

// dialInVain has a new connect while there is no way: it ends by an error or at its limit.
func (r *run) dialInVain() error {
	r.spare.limit = r.conn.limit
	began := time.Now()
	err := r.spare.dial(callLimit)
	took := time.Since(began)
	var answer *answerError
	if !errors.As(err, &answer) && err != nil {
		return err
	}
	if answer == nil {
		return errors.New("a connection through a node that is not there")
	}
	r.saw += ", connect: " + answer.class
	r.within(took, callLimit+soon, "connect")
	return nil
}

// seeNothing: the connection goes on without its daemon or broker, to its end.
func (r *run) seeNothing() error {
	c := &r.conn
	var before [2]stat
	for i, p := range []*remote{c.client, c.server} {
		var err error
		if before[i], err = p.stat(c.id(p), true); err != nil {
			return err
		}
	}
	time.Sleep(300 * time.Millisecond)
	moved, gap := int64(0), int64(0)
	for i, p := range []*remote{c.client, c.server} {
		s, err := c.stat(p)
		if err != nil {
			return err
		}
		if s.RX.End != "" && s.RX.End != "end of file" || s.TX.End != "" && s.TX.End != "finished" {
			return fmt.Errorf("it has ended at the %s: %+v", p.name, s)
		}
		n := s.RX.Bytes - before[i].RX.Bytes
		reads := r.cell.moment != midRing && r.cell.moment != teardown || (p == c.server) == (r.cell.moment == midRing)
		if n == 0 && reads {
			return fmt.Errorf("nothing comes at the %s: %+v", p.name, s)
		}
		if moved += n; reads {
			gap = max(gap, s.RX.Gap)
		}
	}
	e, _, err := c.entries()
	if err != nil {
		return err
	}
	if e != nil && r.cell.moment != setUp && e.mode != connstats.ModeDirect {
		return fmt.Errorf("it is not direct any more: %v, %v", e.mode, e.why)
	}
	r.after = time.Duration(gap)
	if err := c.finish(); err != nil {
		return fmt.Errorf("without the %v: %w", r.cell.victim, err)
	}
	r.saw = fmt.Sprintf("nothing: %s more", size(moved))
	if err := r.others(); err != nil {
		return err
	}
	if r.cell.victim == embeddedBroker && r.cell.moment == setUp {
		if err := r.plainMeanwhile(); err != nil {
			return err
		}
	}
	if err := r.revive(); err != nil {
		return err
	}
	r.within(r.after, soon, "a byte")
	return nil
}

// plainMeanwhile makes a connection while there is no broker: it is plain TCP, at once.
func (r *run) plainMeanwhile() error {
	c := r.w.connection()
	began := time.Now()
	err := errors.Join(c.open(r.w.address(0)), c.pump(64, time.Millisecond), c.flows(), c.finish())
	r.within(time.Since(began), soon, "a new connection without a broker")
	return err
}

// others checks the bystanders while the victim is down. A node that is down is also sent
// more than its queue takes: that must be the sender's loss only.
func (r *run) others() error {
	if err := r.flood(); err != nil {
		return err
	}
	for _, b := range r.w.beside {
		if b.stalls[r.cell.victim] {
			continue
		}
		if err := r.w.moves(b); err != nil {
			return err
		}
	}
	time.Sleep(max(*outage, 300*time.Millisecond) - time.Duration(monotonic()-r.at))
	for _, b := range r.w.beside {
		if b.stalls[r.cell.victim] {
			continue
		}
		a, z, err := r.w.look(b, false)
		if err != nil {
			return err
		}
		if g := time.Duration(max(a.RX.Gap, z.RX.Gap)); g > r.gap {
			r.gap, r.gapOf = g, b.name
		}
	}
	r.within(r.gap, soon, "a byte of bystander %s", r.gapOf)
	return nil
}

// flood has the other nodes send datagrams to one that is down.
func (r *run) flood() error {
	down := r.victimNode()
	if down < 0 {
		return nil
	}
	for i, ns := range r.w.spaces {
		if i == down {
			continue
		}
		var conn net.Conn
		if err := ns.Do(func() (err error) {
			conn, err = net.Dial("udp", fmt.Sprintf("10.77.0.%d:9", down+1))
			return err
		}); err != nil {
			return err
		}
		for range 3000 {
			_, _ = conn.Write(pattern[:1000]) // or it is unreachable
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

// victimNode is the index of the node whose daemon is the victim; -1: of none.
func (r *run) victimNode() int {
	switch r.cell.victim {
	case clientDaemon:
		return 0
	case serverDaemon:
		return 1
	}
	return -1
}

// revive has the victim go on, or starts it again, until a new connection is served.
func (r *run) revive() error {
	w := r.w
	began := time.Now()
	if r.cell.signal == syscall.SIGSTOP {
		if err := unix.Kill(r.victimPID(), syscall.SIGCONT); err != nil {
			return err
		}
	} else if err := r.startAgain(); err != nil {
		return fmt.Errorf("starting the %v again: %w", r.cell.victim, err)
	}
	for _, b := range w.beside {
		if err := w.moves(b); err != nil {
			return err
		}
	}
	if _, err := w.serve(); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	r.again = time.Since(began)
	return nil
}

func (r *run) startAgain() error {
	w := r.w
	switch r.cell.victim {
	case client:
		w.client.kill()
		w.client = nil
		return w.startPeers()
	case server:
		w.server.kill()
		w.server = nil
		return w.startPeers()
	case embeddedBroker:
		if w.broker != nil {
			w.broker.kill()
		}
		return w.startBroker()
	}
	i := r.victimNode()
	if has, err := hasInterface(w.spaces[i], ifname); err != nil || has {
		return fmt.Errorf("%s of the killed daemon is still there: %v", ifname, err)
	}
	w.daemons[i].kill()
	if err := w.startDaemon(i); err != nil {
		return err
	}
	return w.linked()
}

// freed checks that nothing is left of the connection.
func (r *run) freed() error {
	if err := wait("memory", func() (bool, error) { return heldSegments(r.held, r.w.pids()) == nil, nil }); err != nil {
		return fmt.Errorf("%w: %w", err, heldSegments(r.held, r.w.pids()))
	}
	ports := [2]uint16{r.conn.caddr.Port(), r.conn.saddr.Port()}
	for _, ns := range r.w.spaces {
		var left tcpSocket
		if err := wait("sockets", func() (bool, error) {
			all, err := tcpSockets(ns)
			for _, s := range all {
				mine := s.local == ports[0] && s.remote == ports[1] || s.local == ports[1] && s.remote == ports[0]
				if mine && s.state != timeWait && (s.state != finWait2 || s.inode != "0") {
					left = s
					return false, err
				}
			}
			return true, err
		}); err != nil {
			return fmt.Errorf("%w: %+v", err, left)
		}
	}
	return r.w.settle()
}

// counter is one of a daemon's.
func counter(s *control.Status, name string) uint64 {
	for _, c := range s.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// processState is the state of a process (proc_pid_stat(5)); 0: there is none.
func processState(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	if rest == "" {
		return 0
	}
	return rest[0]
}

// gone reports whether a process has ended. It may stay as a zombie: its parent is the first process
// of the PID namespace, which in a container may be a program that waits for nobody.
func gone(pid int) bool {
	s := processState(pid)
	return s == 0 || s == 'Z'
}

func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
