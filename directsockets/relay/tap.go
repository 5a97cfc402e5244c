package relay

import (
	"encoding/binary"
	"net/netip"

	"exnet/directsockets/segment"
	"exnet/fabric"
)

// Shown is what a Tap is told about data, in TCP's words. The first byte of a direction has
// number 1.
type Shown struct {
	Sent     bool          // by the program here; else it has come for it
	Node     fabric.NodeID // where the other program is
	From, To netip.AddrPort
	Seq      uint32 // number of the first byte
	Ack      uint32 // number of the byte that is the next in the other direction
	Fin      bool   // the direction ends
}

// Tap is shown the data that programs send through the fabric, message by message. It runs in the
// data path: it must not block, and borrows data until return.
type Tap func(s Shown, data []byte)

// SetTap shows everything to t from now on; nil: to nobody. It may be called from any goroutine.
func (e *Engine) SetTap(t Tap) {
	if t == nil {
		e.tap.Store(nil)
		return
	}
	e.tap.Store(&t)
}

// maxShown is how much is shown at a time: as much as an IP packet may have.
const maxShown = 60000

// showData shows data of a direction to the tap.
func (e *Engine) showData(t Tap, c *conn, sent, fin bool, data []byte) {
	i := c.seg.Info()
	s := Shown{Sent: sent, Node: c.node.id, From: i.Client, To: i.Server, Seq: uint32(c.wentOut) + 1, Ack: uint32(c.wentIn) + 1, Fin: fin}
	if (c.relay.Side() == segment.Server) != sent {
		s.From, s.To = s.To, s.From
	}
	if !sent {
		s.Seq, s.Ack = s.Ack, s.Seq
	}
	for {
		n := min(len(data), maxShown)
		t(s, data[:n])
		s.Seq += uint32(n)
		if data = data[n:]; len(data) == 0 {
			return
		}
	}
}

// showPacked shows messages as a batch has them.
func (e *Engine) showPacked(c *conn, p []byte) {
	t := e.tap.Load()
	for len(p) > 0 {
		_, _, data, rest, _ := parseHead(p)
		if t != nil {
			e.showData(*t, c, true, false, data)
		}
		c.wentOut += uint64(len(data))
		p = rest
	}
}

// showSent shows a message that was taken from the program here.
func (e *Engine) showSent(c *conn, m *segment.Message, n int) {
	t := e.tap.Load()
	switch {
	case m.Tag == segment.TagPromote:
		c.wentOut += bytesByShadow(m.Payload(), &c.shadowOut)
	case t == nil:
	case m.Tag == segment.TagRMAInfo:
		data := make([]byte, n)
		c.relay.Fetch(m, data)
		e.showData(*t, c, true, false, data)
	case m.Tag == segment.TagShutdown:
		e.showData(*t, c, true, true, nil)
	case n > 0:
		e.showData(*t, c, true, false, m.Payload())
	}
	c.wentOut += uint64(n)
}

// showReceived shows a message that was put into the queue of the program here.
func (e *Engine) showReceived(c *conn, tag segment.Tag, p []byte, n int) {
	t := e.tap.Load()
	switch {
	case tag == segment.TagPromote:
		c.wentIn += bytesByShadow(p, &c.shadowIn)
	case t == nil:
	case tag == segment.TagRMAInfo:
		data := make([]byte, n)
		c.relay.Delivered(p, data)
		e.showData(*t, c, false, false, data)
	case tag == segment.TagShutdown:
		e.showData(*t, c, false, true, nil)
	case n > 0:
		e.showData(*t, c, false, false, p)
	}
	c.wentIn += uint64(n)
}

// bytesByShadow is how many bytes went by the shadow before a PROMOTE and after the one before
// it; of are those before both.
func bytesByShadow(promote []byte, of *uint64) (more uint64) {
	all := binary.LittleEndian.Uint64(promote)
	more, *of = all-*of, all
	return more
}
