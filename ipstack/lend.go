package ipstack

import (
	"sync/atomic"

	"exnet/exteth"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// loan is a buffer whose packet is with netstack by its IP header alone: what follows
// is not copied, and leaves with the header. Whoever takes the buffer out has it; it
// can be taken once.
//
//	FromHost ─► lend ─► netstack: route, neighbour ─► endpoint.write ─► take, Post
//	              └─ still there afterwards: the header waits for the neighbour.
//	                 Take it back; the header leaves for nothing.
type loan struct {
	metadata
	buf atomic.Pointer[exteth.TxBuffer]
}

func (l *loan) take() *exteth.TxBuffer { return l.buf.Swap(nil) }

// lend sends a usual packet by way of netstack, without a copy of it. It takes buf if it
// reports true.
func (s *Stack) lend(route *stack.Route, buf *exteth.TxBuffer) (taken bool, err tcpip.Error) {
	p := buf.Packet()
	n := v4HdrLen
	if !isIPv4(p) {
		n = v6HdrLen
	}
	l := new(loan)
	l.buf.Store(buf)
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: ethHdrLen,
		Payload:            buffer.MakeWithData(p[:n]),
		Mark:               fromHostMark,
	})
	defer pkt.DecRef()
	pkt.Owner = l
	err = route.WriteHeaderIncludedPacket(pkt)
	return l.take() == nil, err
}

// writeLent sends the buffer that pkt is the header of.
func (e *endpoint) writeLent(l *loan, pkt *stack.PacketBuffer) tcpip.Error {
	buf := l.take()
	if buf == nil {
		return nil // the packet has gone another way
	}
	eth := pkt.LinkHeader().Slice()
	copy(buf.Frame(), eth)
	e.s.count.inc(NetstackTx)
	if err := e.s.link.Post(buf); err != nil {
		return e.s.linkError(err, macOf(eth))
	}
	return nil
}
