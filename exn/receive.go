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

func (i *Interface) receive(src fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	i.tapped(RX, off, frame)
	return i.receiver.ReceiveFrame(src, off, frame)
}

// veloPoller is the poll method for VELO interrupts (5a of figure 5.15).
type veloPoller struct{ port *exteth.Port }

func (v veloPoller) Poll(budget int) napi.Work {
	messages, bytes := v.port.PollVELO(budget)
	return napi.Work{Frames: messages, Bytes: bytes}
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

// rmaPoller is the poll method for RMA interrupts (5b of figure 5.15).
type rmaPoller struct{ port *exteth.Port }

func (r rmaPoller) Poll(budget int) napi.Work {
	return napi.Work{Frames: r.port.PollRMA(budget)}
}

func (r rmaPoller) EnableInterrupt() bool { return r.port.RMA().EnableInterrupt() }
func (r rmaPoller) DisableInterrupt()     { r.port.RMA().DisableInterrupt() }
