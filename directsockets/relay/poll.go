package relay

import (
	"exnet/fabric/velo"
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
			var private [velo.MaxPayload]byte
			n := copy(private[:], p)
			b.velo.Advance()
			w.Bytes += n
			e.receive(i, st, private[:n])
		}
	}
	e.tell()
	e.finish()
	return w
}

// EnableInterrupt implements napi.Poller.
func (v veloPoller) EnableInterrupt() (pending bool) {
	return enable(v.messages.Load(), v.messages.Or, v.messages.And, func(i int) bool { return v.boxes[i].velo.EnableInterrupt() })
}

// DisableInterrupt implements napi.Poller: a mailbox that has raised its interrupt has masked it.
func (veloPoller) DisableInterrupt() {}

// enable unmasks the interrupts of the boxes that were polled. The bit of a box is taken
// back before, as its interrupt sets it.
func enable(bits uint32, or, and func(uint32) uint32, on func(i int) bool) (pending bool) {
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
			if en := b.puts[n.Local]; en != nil {
				delete(b.puts, n.Local)
				e.put(en, n.Status)
			}
		}
	}
	e.finish()
	return w
}

// EnableInterrupt implements napi.Poller.
func (r rmaPoller) EnableInterrupt() (pending bool) {
	return enable(r.notices.Load(), r.notices.Or, r.notices.And, func(i int) bool { return r.boxes[i].rma.EnableInterrupt() })
}

// DisableInterrupt implements napi.Poller.
func (rmaPoller) DisableInterrupt() {}

// pumpPoller looks at what the programs have sent.
type pumpPoller struct{ *Engine }

// Poll implements napi.Poller.
func (p pumpPoller) Poll(budget int) (w napi.Work) {
	e := p.Engine
	e.work()
	for _, id := range e.bells.take() {
		if c := e.conns[id]; c != nil {
			c.relay.Awake()
			e.activate(c)
		}
	}
	for i := 0; i < len(e.active) && w.Frames < budget; i++ {
		if c := e.active[i]; !c.over {
			n, bytes := e.pump(c, budget-w.Frames)
			w.Frames += n
			w.Bytes += bytes
		}
	}
	if w.Frames >= budget && len(e.active) > 1 { // another one begins the next time
		e.active = append(e.active[1:], e.active[0])
	}
	e.finish()
	return w
}

// EnableInterrupt arms the doorbells of the connections that were looked at. One that waits
// for credit or for a PUT is looked at when that has come.
func (p pumpPoller) EnableInterrupt() (pending bool) {
	e := p.Engine
	kept := e.active[:0]
	for _, c := range e.active {
		if !c.over && !c.waits() && c.arm() {
			kept = append(kept, c)
			continue
		}
		c.active = false
	}
	clear(e.active[len(kept):])
	e.active = kept
	return len(kept) > 0
}

// DisableInterrupt implements napi.Poller: what comes is only marked.
func (pumpPoller) DisableInterrupt() {}

// activate has a connection be looked at.
func (e *Engine) activate(c *conn) {
	if c.active || c.over {
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
