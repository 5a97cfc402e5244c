package relay

import (
	"exnet/fabric/rma"
	"exnet/napi"
)

// veloPoller takes messages out of the mailboxes that have raised their interrupt.
type veloPoller struct{ *Engine }

// Poll implements napi.Poller.
func (v veloPoller) Poll(budget int) (w napi.Work) {
	e := v.Engine
	for bits, i := e.messages.Load(), 0; bits != 0 && w.Frames < budget; bits, i = bits>>1, i+1 {
		if bits&1 == 0 {
			continue
		}
		for b := &e.boxes[i]; w.Frames < budget; w.Frames++ {
			st, p, ok := b.velo.Peek()
			if !ok {
				break
			}
			n := copy(e.message[:], p)
			b.velo.Advance()
			w.Bytes += n
			e.receiveMessage(i, st, e.message[:n])
		}
	}
	e.wakePrograms()
	e.finishPoll()
	return w
}

// EnableInterrupt implements napi.Poller.
func (v veloPoller) EnableInterrupt() (pending bool) {
	return unmaskBoxes(v.messages.Load(), v.messages.Or, v.messages.And, func(i int) bool { return v.boxes[i].velo.EnableInterrupt() })
}

// DisableInterrupt implements napi.Poller: a mailbox that has raised its interrupt has masked it.
func (veloPoller) DisableInterrupt() {}

// unmaskBoxes unmasks the interrupts of the boxes that were polled. The bit of a box is taken
// back before, as its interrupt sets it.
func unmaskBoxes(bits uint32, or, and func(uint32) uint32, on func(i int) bool) (pending bool) {
	for i := 0; bits>>i != 0; i++ {
		bit := uint32(1) << i
		if bits&bit == 0 {
			continue
		}
		and(^bit)
		if on(i) {
			or(bit)
			pending = true
		}
	}
	return pending
}

// rmaPoller takes notifications: PUTs that have ended.
type rmaPoller struct{ *Engine }

// Poll implements napi.Poller.
func (r rmaPoller) Poll(budget int) (w napi.Work) {
	e := r.Engine
	for bits, i := e.notices.Load(), 0; bits != 0 && w.Frames < budget; bits, i = bits>>1, i+1 {
		if bits&1 == 0 {
			continue
		}
		for b := &e.boxes[i]; w.Frames < budget; w.Frames++ {
			n, ok := b.rma.Next()
			if !ok {
				break
			}
			r.takeNotification(i, n)
		}
		e.startWaiting(&e.boxes[i])
	}
	e.wakePrograms()
	e.finishPoll()
	return w
}

// startWaiting has what waits for a PUT to end try again.
func (e *Engine) startWaiting(b *box) {
	later := b.later
	b.later = nil
	for _, f := range later {
		f()
	}
}

// takeNotification takes a notification.
func (e *Engine) takeNotification(box int, n rma.Notification) {
	b := &e.boxes[box]
	if n.Writer == rma.Completer {
		e.noteLanded(box, n)
		return
	}
	if en := b.puts[n.Local]; en != nil {
		delete(b.puts, n.Local)
		e.endTransfer(en, n.Status)
	} else if ba := b.batches[n.Local]; ba.ch != nil {
		delete(b.batches, n.Local)
		e.endPut(ba, n.Status)
	}
}

// EnableInterrupt implements napi.Poller.
func (r rmaPoller) EnableInterrupt() (pending bool) {
	return unmaskBoxes(r.notices.Load(), r.notices.Or, r.notices.And, func(i int) bool { return r.boxes[i].rma.EnableInterrupt() })
}

// DisableInterrupt implements napi.Poller.
func (rmaPoller) DisableInterrupt() {}

// pumpPoller looks at what the programs have sent.
type pumpPoller struct{ *Engine }

// Poll implements napi.Poller.
func (p pumpPoller) Poll(budget int) (w napi.Work) {
	e := p.Engine
	e.workInbox()
	for _, id := range e.bells.takeRung() {
		if c := e.conns[id]; c != nil {
			c.relay.Awake()
			e.activateConn(c)
		}
	}
	for i := 0; i < len(e.active) && w.Frames < budget; i++ {
		c := e.active[i]
		if c.state == stateOver {
			continue
		}
		n, bytes := e.pumpConn(c, budget-w.Frames)
		w.Frames += n
		w.Bytes += bytes
		if c.idle++; n > 0 {
			c.idle = 0
			e.watchSuspended()
			if c.oneWay += n; c.oneWay > stream && bytes <= n*small {
				e.flows.Store(true)
			}
		}
	}
	if w.Frames >= budget && len(e.active) > 1 { // another one begins the next time
		e.active = append(e.active[1:], e.active[0])
	}
	e.moved.Add(int64(w.Bytes))
	e.finishPoll()
	return w
}

// A connection has a stream if it has sent so many messages since the last one came, which were no
// larger than small on average, in bytes: they are left to gather.
const stream, small = 64, 4 << 10

// idleLooks is how often a driver looks at a connection and finds nothing before its doorbell is
// armed although the driver looks on.
const idleLooks = 256

// EnableInterrupt arms the doorbells of the connections that were looked at, unless the
// driver looks on. One that waits for credit or for a PUT is looked at when that has come.
func (p pumpPoller) EnableInterrupt() (pending bool) {
	e := p.Engine
	waiting := e.waiting.Load()
	kept := e.active[:0]
	for _, c := range e.active {
		over := c.state == stateOver
		pending = pending || c.due && !over
		if !over && (c.due || !c.isWaiting() && (!waiting && c.idle < idleLooks || c.armBell())) {
			kept = append(kept, c)
			continue
		}
		c.active = false
	}
	clear(e.active[len(kept):])
	e.active = kept
	e.watched.Store(len(kept) > 0)
	return pending || len(kept) > 0 && e.waiting.Load() // also if the driver has begun to wait meanwhile
}

// DisableInterrupt implements napi.Poller: what comes is only marked.
func (pumpPoller) DisableInterrupt() {}

// activateConn has a connection be looked at.
func (e *Engine) activateConn(c *conn) {
	if c.active || c.state == stateOver {
		return
	}
	c.active = true
	e.active = append(e.active, c)
	e.pumpIRQ.Interrupt()
}

// PollFrame implements napi.Poller: one message.
func (v veloPoller) PollFrame() napi.Work { return v.Poll(1) }

// RaiseInterrupt implements napi.Poller.
func (v veloPoller) RaiseInterrupt() { v.veloIRQ.Interrupt() }

// PollFrame implements napi.Poller: one notification.
func (r rmaPoller) PollFrame() napi.Work { return r.Poll(1) }

// RaiseInterrupt implements napi.Poller.
func (r rmaPoller) RaiseInterrupt() { r.rmaIRQ.Interrupt() }

// PollFrame implements napi.Poller: one message of a program.
func (p pumpPoller) PollFrame() napi.Work { return p.Poll(1) }

// RaiseInterrupt implements napi.Poller.
func (p pumpPoller) RaiseInterrupt() { p.pumpIRQ.Interrupt() }
