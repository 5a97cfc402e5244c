package killmatrix

import (
	"errors"
	"fmt"
	"time"

	"exnet/directsockets/broker/connstats"
)

// reach brings a new connection to the moment of the cell and returns what proves that it
// is there.
func (r *run) reach() (proof string, err error) {
	c, w := &r.conn, r.w
	if err := errors.Join(c.listen(w.address(w.serverNode())), r.spare.listen(w.address(w.serverNode()))); err != nil {
		return "", err
	}
	if err := c.dial(hangTime); err != nil {
		return "", err
	}
	if r.cell.moment == setUp {
		return r.reachSetUp()
	}
	if err := c.accept(); err != nil {
		return "", err
	}
	if err := errors.Join(c.read(c.client, false), c.read(c.server, false), c.pump(64, 300*time.Microsecond), c.flows()); err != nil {
		return "", err
	}
	if w.path.direct {
		ok, err := c.becomesDirect(hangTime)
		if err != nil || !ok {
			return "", fmt.Errorf("it does not become direct: %w", err)
		}
	}
	switch r.cell.moment {
	case eager:
		return r.traffic()
	case rendezvous:
		if err := c.pump(maxPiece, 200*time.Microsecond); err != nil {
			return "", err
		}
		return r.traffic()
	case midRing:
		return r.fill()
	case returning, returned, passed:
		return r.leave()
	default:
		return r.halfClose()
	}
}

// reachSetUp is before the first direct byte. A TCP connection: the server has not
// accepted it. A direct socket: it is offered, and the server has not claimed it.
func (r *run) reachSetUp() (proof string, err error) {
	c, w := &r.conn, r.w
	if err := errors.Join(c.read(c.client, false), c.write(c.client, 64, 20*time.Millisecond)); err != nil {
		return "", err
	}
	if !w.path.direct {
		return "established, not accepted", wait("a connection that is not accepted", func() (bool, error) {
			all, err := tcpSockets(w.spaces[w.serverNode()])
			for _, s := range all {
				if s.remote == c.caddr.Port() && s.local == c.saddr.Port() && s.state == established && s.inode == "0" {
					return true, err
				}
			}
			return false, err
		})
	}
	if err := c.accept(); err != nil {
		return "", err
	}
	return "offered, not claimed", wait("an offer", func() (bool, error) {
		e, _, err := c.entries()
		if err != nil || e == nil {
			return false, err
		}
		if e.n[sentDirect] > 0 {
			return false, errors.New("it is direct")
		}
		return e.why == connstats.WhyOffered, nil
	})
}

// traffic waits until bytes have come both ways, and says by which means.
func (r *run) traffic() (proof string, err error) {
	c := &r.conn
	if !r.w.path.direct {
		before, err := r.w.status(0)
		if err != nil {
			return "", err
		}
		eagerFrames, rdv := uint64(0), uint64(0)
		err = wait("frames", func() (bool, error) {
			now, err := r.w.status(0)
			if err != nil {
				return false, err
			}
			eagerFrames = counter(now, "exteth.tx_eager") - counter(before, "exteth.tx_eager")
			rdv = counter(now, "exteth.tx_rendezvous") - counter(before, "exteth.tx_rendezvous")
			if r.cell.moment == eager {
				return eagerFrames > 20, nil
			}
			return rdv > 5, nil
		})
		if err == nil && r.cell.moment == eager && rdv > eagerFrames/2 {
			err = fmt.Errorf("%d frames by rendezvous, %d eager", rdv, eagerFrames)
		}
		return fmt.Sprintf("%d eager frames, %d by RMA GET", eagerFrames, rdv), err
	}
	if err := c.flows(); err != nil {
		return "", err
	}
	a, b, err := c.entries()
	if err != nil {
		return "", err
	}
	var velo, rma uint64
	err = wait("direct messages", func() (bool, error) {
		a2, b2, err := c.entries()
		if err != nil || a2 == nil || b2 == nil {
			return false, err
		}
		velo, rma = a2.n[sentVELOLast]-a.n[sentVELOLast], a2.n[sentRMAInfo]-a.n[sentRMAInfo]
		veloB, rmaB := b2.n[sentVELOLast]-b.n[sentVELOLast], b2.n[sentRMAInfo]-b.n[sentRMAInfo]
		if r.cell.moment == eager {
			return velo > 5 && veloB > 5, nil
		}
		return rma > 5 && rmaB > 5, nil
	})
	if err == nil && r.cell.moment == eager && rma > 0 {
		err = fmt.Errorf("%d RMA_INFO", rma)
	}
	return fmt.Sprintf("%d VELO_LAST, %d RMA_INFO", velo, rma), err
}

// fill has the client write until nothing more fits, while the server does not read.
func (r *run) fill() (proof string, err error) {
	c := &r.conn
	if err := errors.Join(c.read(c.server, true), c.write(c.server, 0, 0), c.write(c.client, 64<<10, 0)); err != nil {
		return "", err
	}
	var last int64
	since := time.Now()
	err = wait("a sender that cannot go on", func() (bool, error) {
		s, err := c.stat(c.client)
		if err != nil {
			return false, err
		}
		if s.TX.Bytes != last {
			last, since = s.TX.Bytes, time.Now()
		}
		if e, _, err := c.entries(); err != nil || r.w.path.direct && (e == nil || e.n[ringUsed] < e.n[ringSize]*3/8) {
			// poll(2) says that it takes more while a quarter is free; on one CPU, a sender uses
			// half of the ring.
			return false, err
		}
		return s.TX.Busy && time.Since(since) > 150*time.Millisecond, nil
	})
	if err != nil {
		return "", err
	}
	if !r.w.path.direct {
		return fmt.Sprintf("%d bytes taken, the sender sleeps", last), nil
	}
	e, _, err := c.entries()
	if err != nil || e == nil {
		return "", fmt.Errorf("no statistics: %w", err)
	}
	return fmt.Sprintf("ring %d of %d bytes", e.n[ringUsed], e.n[ringSize]), nil
}

// leave has the server's receiver fall back while much is unread, or pass its descriptor on, until
// the client's bytes that go back to TCP fill what the kernel has for them: fewer than the ring
// has, or more.
func (r *run) leave() (proof string, err error) {
	c, op, all := &r.conn, "leave", r.cell.moment == returned
	if r.cell.moment == passed {
		op = "pass"
	}
	if _, err := r.fill(); err != nil {
		return "", err
	}
	full, _, err := c.entries()
	if err != nil || full == nil {
		return "", fmt.Errorf("no statistics: %w", err)
	}
	if _, err := c.server.ask(request{Op: op, ID: c.sid}); err != nil {
		var a *answerError
		if errors.As(err, &a) && a.class == errNotLooked.Error() {
			return "", r.notLooked()
		}
		return "", err
	}
	var last uint64
	since := time.Now()
	err = wait("TCP that takes no more", func() (bool, error) {
		n, err := r.queued()
		if n != last {
			last, since = n, time.Now()
		}
		return n > 0 && time.Since(since) > 150*time.Millisecond && (n >= full.n[ringUsed] || !all), err
	})
	if errors.Is(err, errLate) {
		err = fmt.Errorf("%w: %d bytes; %s", err, last, r.both())
	}
	if err == nil && last >= full.n[ringUsed] && !all {
		err = fmt.Errorf("TCP has taken %d bytes, of %d in the ring", last, full.n[ringUsed])
	}
	return fmt.Sprintf("%d of %d bytes are back on TCP", last, full.n[ringUsed]), err
}

// notLooked ends what has come to errNotLooked. The cell is tried again.
func (r *run) notLooked() error {
	if err := errors.Join(r.conn.close(r.conn.client), r.conn.close(r.conn.server)); err != nil {
		return err
	}
	if _, err := r.spare.server.ask(request{Op: "unlisten", ID: r.spare.lid}); err != nil {
		return err
	}
	return slowError{errNotLooked}
}

// both is the state of both ends, for messages.
func (r *run) both() string {
	text := ""
	for _, p := range []*remote{r.conn.client, r.conn.server} {
		s, err := r.conn.stat(p)
		e, eerr := p.entry(r.conn.caddr, r.conn.saddr)
		text += fmt.Sprintf("%s: %+v, %+v, %v\n", p.Name, s, e, errors.Join(err, eerr))
	}
	return text
}

// queued is how many bytes from client to server TCP has.
func (r *run) queued() (uint64, error) {
	var unacked, unread uint64
	for _, i := range []int{0, r.w.serverNode()} {
		all, err := tcpSockets(r.w.spaces[i])
		if err != nil {
			return 0, err
		}
		for _, s := range all {
			switch [2]uint16{s.local, s.remote} {
			case [2]uint16{r.conn.caddr.Port(), r.conn.saddr.Port()}:
				unacked = s.unacked
			case [2]uint16{r.conn.saddr.Port(), r.conn.caddr.Port()}:
				unread = s.unread
			}
		}
	}
	return unacked + unread, nil
}

// halfClose has the client end its direction, while the server goes on.
func (r *run) halfClose() (proof string, err error) {
	c := &r.conn
	if err := c.half(c.client); err != nil {
		return "", err
	}
	if err := wait("end of file at the server", func() (bool, error) {
		s, err := c.stat(c.server)
		return s.RX.End == "end of file", err
	}); err != nil {
		return "", err
	}
	if err := c.write(c.server, 16<<10, time.Millisecond); err != nil {
		return "", err
	}
	if !r.w.path.direct {
		return "the server has read end of file", nil
	}
	a, b, err := c.entries()
	if err == nil && (a == nil || b == nil || a.n[sentShutdown] != 1 || b.n[sentShutdown] != 0) {
		err = fmt.Errorf("no SHUTDOWN: %+v, %+v", a, b)
	}
	return "1 SHUTDOWN, 0 back", err
}
