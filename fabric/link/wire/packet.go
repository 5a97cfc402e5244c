package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"exnet/fabric/rma"
)

// A packet as it is on the medium, little endian:
//
//	off len
//	  0   1  version 0xE2
//	  1   1  flags: 1 DATA, the packet has a sequence number and a message;
//	                2 NACK, go back to the packet acknowledged
//	  2   2  length of the message
//	  4   4  sequence number, of DATA
//	  8   4  acknowledgement: the sequence number expected next
//	 12   6  limits of the channels response, non-posted, posted: the number (2) of the first
//	         message, modulo 2^16, for which there is no buffer
//	 18   2  zero
//	 20   4  CRC-32C of the packet with this field zero
//	 24      message
const (
	packetVersion = 0xE2

	flagsOff  = 1
	lengthOff = 2
	seqOff    = 4
	ackOff    = 8
	limitsOff = 12
	zeroOff   = 18
	crcOff    = 20

	// HeaderLen is the length of a packet's header.
	HeaderLen = 24
	// MaxMessage is the length of a message at most: a fragment of an RMA transfer
	// and what says where it belongs.
	MaxMessage = fragmentLen + rma.MTU
	// MaxPacket is the length of a packet at most.
	MaxPacket = HeaderLen + MaxMessage
)

const (
	flagData = 1 << iota
	flagNack
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrPacket says that a packet is not one: too short, damaged, of another version.
// Drop it; its sender repeats it.
var ErrPacket = errors.New("wire: bad packet")

// packet is a packet's header, and its message.
type packet struct {
	flags    uint8
	seq, ack uint32
	limits   limits
	message  []byte
}

// appendPacket appends the encoding of p to b.
func appendPacket(b []byte, p packet) []byte {
	start := len(b)
	b = append(b, packetVersion, p.flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(p.message)))
	b = binary.LittleEndian.AppendUint32(b, p.seq)
	b = binary.LittleEndian.AppendUint32(b, p.ack)
	for _, l := range p.limits {
		b = binary.LittleEndian.AppendUint16(b, l)
	}
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, p.message...)
	binary.LittleEndian.PutUint32(b[start+crcOff:], packetChecksum(b[start:]))
	return b
}

// packetChecksum is the CRC of a packet as if its field were zero.
func packetChecksum(b []byte) uint32 {
	var zero [HeaderLen - crcOff]byte
	c := crc32.Update(0, castagnoli, b[:crcOff])
	c = crc32.Update(c, castagnoli, zero[:])
	return crc32.Update(c, castagnoli, b[HeaderLen:])
}

// parsePacket decodes b. The message lends b.
func parsePacket(b []byte) (p packet, err error) {
	switch {
	case len(b) < HeaderLen:
		return p, fmt.Errorf("%w of %d bytes: %w", ErrPacket, len(b), io.ErrUnexpectedEOF)
	case len(b) > MaxPacket:
		return p, fmt.Errorf("%w of %d bytes, at most %d", ErrPacket, len(b), MaxPacket)
	case binary.LittleEndian.Uint32(b[crcOff:]) != packetChecksum(b):
		return p, fmt.Errorf("%w: CRC", ErrPacket)
	case b[0] != packetVersion:
		return p, fmt.Errorf("%w: version %#x", ErrPacket, b[0])
	}
	p = packet{
		flags:   b[flagsOff],
		seq:     binary.LittleEndian.Uint32(b[seqOff:]),
		ack:     binary.LittleEndian.Uint32(b[ackOff:]),
		message: b[HeaderLen:],
	}
	for ch := range p.limits {
		p.limits[ch] = binary.LittleEndian.Uint16(b[limitsOff+2*ch:])
	}
	n := int(binary.LittleEndian.Uint16(b[lengthOff:]))
	if n != len(p.message) || (p.flags&flagData != 0) != (n > 0) || p.flags > flagData|flagNack ||
		binary.LittleEndian.Uint16(b[zeroOff:]) != 0 {
		return packet{}, fmt.Errorf("%w: flags %#x, message of %d bytes in %d", ErrPacket, p.flags, n, len(p.message))
	}
	return p, nil
}
