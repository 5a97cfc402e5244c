package exteth

import (
	"exnet/fabric"
	"exnet/fabric/atu"
)

// EthernetHeaderLen is the length of an Ethernet header: destination 6 +
// source 6 + EtherType 2.
const EthernetHeaderLen = 6 + 6 + 2

// Headroom is where the IP packet begins in a TxBuffer's memory. The Ethernet
// header ends there, and before it there is room for the header with which a
// TUN device prefixes a packet. It is one cache line, so the packet's headers begin
// a cache line.
const Headroom = 64

// TxBuffer holds one frame to send, in memory that is registered with the ATU,
// so that a peer can GET it. It belongs to whoever took it from Port.Alloc
// until it is given back, by Port.Free or a send that takes it.
type TxBuffer struct {
	// Offload is the offload metadata of the packet.
	Offload Offload
	// Class is the traffic class by which crossbars choose a route for the frame.
	Class fabric.Class

	mem    []byte
	region *atu.Region
	end    int // where the frame ends in mem

	sent     int   // bytes already sent of a group frame that waits for credit
	deadline int64 // rendezvous: when Expire takes it back, in nanoseconds of the Port's clock
	next     *TxBuffer
}

// Mem returns the buffer's memory: Headroom bytes, then room for a packet of
// the Port's maximum size.
func (b *TxBuffer) Mem() []byte { return b.mem }

// SetPacket says that the IP packet at Headroom has n bytes.
func (b *TxBuffer) SetPacket(n int) { b.end = Headroom + n }

// Packet returns the frame's payload: the IP packet.
func (b *TxBuffer) Packet() []byte { return b.mem[Headroom:b.end] }

// Sent returns how many bytes of a group frame were sent before it had to wait for
// credit.
func (b *TxBuffer) Sent() int { return b.sent }

// Frame returns the Ethernet frame: header and payload, no frame check
// sequence.
func (b *TxBuffer) Frame() []byte { return b.mem[Headroom-EthernetHeaderLen : b.end] }
