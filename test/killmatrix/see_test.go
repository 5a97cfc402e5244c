package killmatrix

import (
	"errors"
	"fmt"
	"net"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
)

// seeEnd: the victim was killed; the other end hears of it in both directions.
func (r *run) seeEnd() error {
	if err := r.wake(); err != nil {
		return err
	}
	woken := monotonic()
	left := r.survivor()
	if r.cell.moment.left() && r.cell.victim == client {
		// A write would have a reset answer it, which takes what TCP has not brought yet.
		if err := wait("the end of what the client has sent", func() (bool, error) {
			s, err := r.conn.stat(left)
			return s.RX.End != "", err
		}); err != nil {
			return err
		}
	}
	if r.cell.moment != teardown && r.cell.victim == client {
		// Who only reads has an end of file; writing has to fail, too.
		if err := r.conn.write(left, 64, time.Millisecond); err != nil {
			return err
		}
	}
	var s stat
	if err := wait("the end of both directions at the "+left.Name, func() (bool, error) {
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
	if r.cell.victim == client && r.cell.moment.left() && s.RX.Bytes < r.wrote {
		return fmt.Errorf("%d bytes of %d have come", s.RX.Bytes, r.wrote)
	}
	r.after = time.Duration(s.RX.EndAt - r.at)
	if r.cell.moment == setUp || r.cell.moment.full() {
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
	r.within(r.after, soon, "the news to the %s", left.Name)
	return nil
}

// seeCut: what the killed daemon carried is lost, so both programs have a reset, or the end of what
// had ended before: the one beside it at once, the other one when the daemon is there again. Until
// then the link may only be away, and TCP would wait, too.
func (r *run) seeCut() error {
	near, far := r.conn.client, r.conn.server
	if r.cell.victim == serverDaemon {
		near, far = far, near
	}
	if err := errors.Join(r.wake(), r.seeReset(near)); err != nil {
		return err
	}
	if err := r.others(); err != nil {
		return err
	}
	if err := r.revive(); err != nil {
		return err
	}
	r.within(r.after, soon, "the news")
	after := r.after // the rest waits for the daemon
	defer func() { r.after = after }()
	return r.seeReset(far)
}

// seeReset waits until a program has seen that the connection was cut.
func (r *run) seeReset(p *remote) error {
	if r.cell.moment != teardown || p == r.conn.server {
		if err := r.conn.write(p, 64, time.Millisecond); err != nil {
			return err
		}
	}
	var s stat
	if err := wait("the end of both directions at the "+p.Name, func() (bool, error) {
		var err error
		s, err = r.conn.stat(p)
		return s.RX.End != "" && s.TX.End != "", err
	}); err != nil {
		return fmt.Errorf("%w: %+v", err, s)
	}
	// As of TCP, one call has the reset, and others find that nothing comes or goes any more.
	over := r.cell.moment == teardown // from client to server, in order
	rx := s.RX.End == "reset" || s.RX.End == "end of file" && (s.TX.End == "reset" || over && p == r.conn.server)
	tx := s.TX.End == "reset" || s.TX.End == "pipe" && (s.RX.End == "reset" || over) || over && p == r.conn.client && s.TX.End == "finished"
	if !rx || !tx || s.RX.Bad != 0 {
		return fmt.Errorf("no reset at the %s: %+v", p.Name, s)
	}
	r.saw += p.Name + ": " + s.RX.End + ", " + s.TX.End + "; "
	r.after = max(r.after, time.Duration(max(s.RX.EndAt, s.TX.EndAt)-r.at))
	return r.conn.close(p)
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
		err := wait("a deadline at the "+p.Name, func() (bool, error) {
			var err error
			if direct, err = r.direct(p); err != nil || direct > 0 {
				return true, err
			}
			s, err := r.conn.stat(p)
			w = s.RX
			if r.cell.moment.full() && p == r.conn.client || r.cell.moment == teardown && p == r.conn.server {
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
			r.saw = "deadline, but " + p.Name + " direct"
			continue
		}
		r.after = max(r.after, time.Duration(w.Timeout-r.at))
		r.within(time.Duration(w.Longest), callLimit+soon, "a call at the %s", p.Name)
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
		reads := !r.cell.moment.full() && r.cell.moment != teardown || (p == c.server) == r.cell.moment.full()
		err := wait("nothing comes at the "+p.Name, func() (bool, error) {
			s, err := c.stat(p)
			if err != nil {
				return false, err
			}
			if s.RX.End != "" && s.RX.End != "end of file" || s.TX.End != "" && s.TX.End != "finished" {
				return false, fmt.Errorf("it has ended: %+v", s)
			}
			n := s.RX.Bytes - before[i].RX.Bytes
			if reads && n == 0 {
				return false, nil
			}
			if moved += n; reads {
				gap = max(gap, s.RX.Gap)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	e, _, err := c.entries()
	if err != nil {
		return err
	}
	if e != nil && r.cell.moment != setUp && !r.cell.moment.left() && e.mode != connstats.ModeDirect {
		return fmt.Errorf("it is not direct any more: %v, %v", e.mode, e.why)
	}
	r.after = time.Duration(gap)
	if err := c.finish(); err != nil {
		return fmt.Errorf("without the %v: %w", r.cell.victim, err)
	}
	r.saw = fmt.Sprintf("nothing: %s more", display.Bytes(uint64(moved)))
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
