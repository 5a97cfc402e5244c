package exteth

import (
	"errors"
	"fmt"

	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// sink is the device that GETs write to: bytes written into a window are a frame on
// its way to the Receiver. Its address range has one window of MaxFrame bytes for each
// transfer.
type sink struct {
	port      *Port
	region    *atu.Region
	transfers [MaxTransfers]transfer
	free      *transfer
}

// transfer is one GET. It belongs to the poller, except while the GET runs: then to
// the link's goroutine that brings the data.
type transfer struct {
	peer      *peer
	off       Offload
	length    int
	written   int  // bytes written so far
	delivered bool // the frame went to the Receiver
	window    int
	bounce    []byte // for a link that brings a frame in pieces
	head      [HeadLen]byte
	next      *transfer
}

func (s *sink) allocate(p *Port) error {
	s.port = p
	for i := range s.transfers {
		t := &s.transfers[i]
		t.window, t.next = i, s.free
		s.free = t
	}
	var err error
	s.region, err = p.nic.ATU().RegisterDevice(p.cfg.VPID, s, MaxTransfers*MaxFrame, atu.Write)
	return err
}

func (s *sink) close() error {
	if s.region == nil {
		return nil
	}
	return s.region.Close()
}

func (s *sink) takeTransfer(pr *peer) *transfer {
	t := s.free
	if t == nil {
		return nil
	}
	s.free, t.next = t.next, nil
	t.peer = pr
	pr.transfers++
	return t
}

func (s *sink) putTransfer(t *transfer) {
	t.peer.transfers--
	t.peer = nil
	t.next, s.free = s.free, t
}

func (s *sink) addressOf(t *transfer) atu.NLA {
	return s.region.NLA() + atu.NLA(t.window)*MaxFrame
}

// matchTransfer returns the transfer whose last RMA packet went to the notification's
// address, or nil if no such transfer is under way with that node.
func (s *sink) matchTransfer(n rma.Notification) *transfer {
	window := uint64(n.Local-s.region.NLA()) / MaxFrame
	if window >= MaxTransfers {
		return nil
	}
	t := &s.transfers[window]
	if t.peer == nil || t.peer.node != n.Node || rma.LastFragment(s.addressOf(t), t.length) != n.Local {
		return nil
	}
	return t
}

var errNoTransfer = errors.New("exteth: write to a window without a transfer")

// WriteAt implements atu.Device: the RMA completer writes the bytes of a frame, over
// some links in pieces and in any order.
func (s *sink) WriteAt(b foreign.Memory, off int64) (int, error) {
	t := &s.transfers[off/MaxFrame]
	at, n := int(off%MaxFrame), b.Len()
	if t.peer == nil || t.delivered || at+n > t.length {
		return 0, fmt.Errorf("%w: %d bytes at %d", errNoTransfer, n, off)
	}
	t.written += n
	var frame foreign.Frame
	if n == t.length {
		frame = foreign.Split(b, t.head[:])
	} else {
		if cap(t.bounce) < t.length {
			t.bounce = make([]byte, t.length)
		}
		b.CopyTo(t.bounce[at:t.length])
		if t.written < t.length {
			return n, nil
		}
		frame = foreign.Private(t.bounce[:t.length])
	}
	t.delivered = true
	if err := s.port.deliverFrame(t.peer.node, t.off, frame); err != nil {
		return 0, err
	}
	return n, nil
}
