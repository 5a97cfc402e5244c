package exn

import (
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
	"exnet/napi"
)

type receiverFunc func(fabric.NodeID, exteth.Offload, foreign.Frame) error

func (f receiverFunc) ReceiveFrame(src fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	return f(src, off, frame)
}

func (i *Interface) receiveFrame(src fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	i.showTap(RX, off, frame)
	if i.stations != nil && !i.mayEnter(src, frame.Head()) {
		return nil
	}
	if i.filteredOut(src, frame.Head()) {
		return nil
	}
	return i.receiver.ReceiveFrame(src, off, frame)
}

// veloPoller is the poll method for VELO interrupts (5a of figure 5.15).
type veloPoller struct{ port *exteth.Port }

func (v veloPoller) Poll(budget int) napi.Work {
	messages, bytes := v.port.PollVELO(budget)
	return napi.Work{Frames: messages, Bytes: bytes}
}

// PollFrame handles messages until one frame is complete. Messages that bring no
// bytes of a frame are handled on the way.
func (v veloPoller) PollFrame() (w napi.Work) {
	for w.Bytes == 0 && w.Frames < napi.DefaultBudget {
		one := v.Poll(1)
		if one.Frames == 0 {
			break
		}
		w.Frames += one.Frames
		w.Bytes += one.Bytes
	}
	return w
}

// EnableInterrupt leaves the interrupt masked while messages wait for a free
// transfer: the Port's OnWork schedules the source then.
func (v veloPoller) EnableInterrupt() bool {
	if v.port.Starved() {
		return false
	}
	return v.port.VELO().EnableInterrupt()
}

func (v veloPoller) DisableInterrupt() { v.port.VELO().DisableInterrupt() }
func (v veloPoller) RaiseInterrupt()   { v.port.VELO().RaiseInterrupt() }

// rmaPoller is the poll method for RMA interrupts (5b of figure 5.15).
type rmaPoller struct{ port *exteth.Port }

func (r rmaPoller) Poll(budget int) napi.Work {
	notifications, bytes := r.port.PollRMA(budget)
	return napi.Work{Frames: notifications, Bytes: bytes}
}

// PollFrame handles one notification.
func (r rmaPoller) PollFrame() napi.Work  { return r.Poll(1) }
func (r rmaPoller) EnableInterrupt() bool { return r.port.RMA().EnableInterrupt() }
func (r rmaPoller) DisableInterrupt()     { r.port.RMA().DisableInterrupt() }
func (r rmaPoller) RaiseInterrupt()       { r.port.RMA().RaiseInterrupt() }
