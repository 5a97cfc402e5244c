package ipstack

import (
	"sync/atomic"

	"exnet/exteth"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// loan is a buffer of whose packet netstack gets only the IP header. The rest is not
// copied; it leaves with the header. Only the first take returns the buffer.
//
//	FromHost ─► lend ─► netstack: route, neighbour ─► endpoint.write ─► take, Post
//	              └─ not taken on return: the header waits for the neighbour.
//	                 lend takes the buffer back; the header is dropped later.
type loan struct {
	metadata
	buf atomic.Pointer[exteth.TxBuffer]
}

func (l *loan) takeBuffer() *exteth.TxBuffer { return l.buf.Swap(nil) }

// sendLent sends a usual packet through netstack without copying it. It takes buf if it
// returns true.
func (s *Stack) sendLent(route *stack.Route, buf *exteth.TxBuffer) (taken bool, err tcpip.Error) {
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
	return l.takeBuffer() == nil, err
}

// writeLent sends the buffer that pkt is the header of.
func (e *endpoint) writeLent(l *loan, pkt *stack.PacketBuffer) tcpip.Error {
	buf := l.takeBuffer()
	if buf == nil {
		return nil // lend took the buffer back
	}
	eth := pkt.LinkHeader().Slice()
	copy(buf.Frame(), eth)
	e.s.count.inc(NetstackTx)
	if err := e.s.link.Post(buf); err != nil {
		return e.s.linkError(err, macOf(eth))
	}
	return nil
}
