package exn

import (
	"exnet/exteth"
	"exnet/foreign"
)

// Direction says which way a frame goes, as its host sees it.
type Direction uint8

// The directions. The zero Direction is invalid.
const (
	RX Direction = iota + 1 // from the fabric
	TX                      // to the fabric
)

// String returns "rx" or "tx".
func (d Direction) String() string {
	switch d {
	case RX:
		return "rx"
	case TX:
		return "tx"
	}
	return "unknown"
}

// Tap is shown the frames of an Interface.
type Tap interface {
	// Frame is called with a frame, Ethernet header first, and the offload metadata
	// that says what was left undone on it. The whole of a sent frame is its Head.
	// Frame runs in the data path: it must not block, and must not write to frame,
	// which it borrows until return. It may be called from many goroutines at a time.
	Frame(d Direction, off exteth.Offload, frame foreign.Frame)
}

// SetTap installs t for all frames from now on; nil removes the tap. The tap
// installed before may still see a frame that is under way.
func (i *Interface) SetTap(t Tap) {
	if t == nil {
		i.tap.Store(nil)
		return
	}
	i.tap.Store(&t)
}

// showTap shows a frame to the tap, if there is one.
func (i *Interface) showTap(d Direction, off exteth.Offload, frame foreign.Frame) {
	if t := i.tap.Load(); t != nil {
		(*t).Frame(d, off, frame)
	}
}
