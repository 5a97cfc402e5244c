package exteth

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// OffloadLen is the length of an encoded Offload: flags 1 + GSO type 1 +
// header length 2 + GSO size 2 + checksum start 2 + checksum offset 2.
const OffloadLen = 1 + 1 + 2 + 2 + 2 + 2

// Offsets of the fields of an encoded Offload. They are those of struct
// virtio_net_hdr (Virtio 1.2, section 5.1.6).
const (
	offloadFlagsOff      = 0 // uint8
	offloadGSOTypeOff    = 1 // uint8
	offloadHdrLenOff     = 2 // uint16
	offloadGSOSizeOff    = 4 // uint16
	offloadCsumStartOff  = 6 // uint16
	offloadCsumOffsetOff = 8 // uint16
)

// Flags of an Offload (VIRTIO_NET_HDR_F_*).
const (
	// OffloadNeedsChecksum says that the transport checksum is not computed yet; its
	// field holds the sum of the pseudo header.
	OffloadNeedsChecksum uint8 = 1
	// OffloadDataValid says that the checksum was verified.
	OffloadDataValid uint8 = 2
)

// Segmentation types of an Offload (VIRTIO_NET_HDR_GSO_*).
const (
	GSONone  uint8 = 0
	GSOTCPv4 uint8 = 1
	GSOTCPv6 uint8 = 4
	GSOUDPL4 uint8 = 5
	// GSOECN may be set beside a TCP type.
	GSOECN uint8 = 0x80
)

// ErrOffload says that offload metadata does not fit its packet. The packet
// must not be passed on.
var ErrOffload = errors.New("exteth: offload metadata does not fit the packet")

// Offload is the offload metadata of one IP packet: what was left undone on
// it, because memory does not corrupt data and the far host need not verify
// it. It has the fields of struct virtio_net_hdr, with offsets relative to
// the start of the IP packet. The zero value says that nothing was left undone.
type Offload struct {
	Flags      uint8
	GSOType    uint8
	HdrLen     uint16 // bytes of header before the payload, a hint
	GSOSize    uint16 // bytes of payload per segment
	CsumStart  uint16 // where the checksum begins
	CsumOffset uint16 // where the checksum goes, from CsumStart
}

// AppendWire appends the encoding for the wire (big endian, OffloadLen bytes)
// to b.
func (o Offload) AppendWire(b []byte) []byte {
	b = append(b, o.Flags, o.GSOType)
	b = binary.BigEndian.AppendUint16(b, o.HdrLen)
	b = binary.BigEndian.AppendUint16(b, o.GSOSize)
	b = binary.BigEndian.AppendUint16(b, o.CsumStart)
	return binary.BigEndian.AppendUint16(b, o.CsumOffset)
}

// AppendHost appends the encoding for a TUN device (native endian, OffloadLen
// bytes) to b. It does not share code with AppendWire, because a call through
// binary.AppendByteOrder would move b to the heap.
func (o Offload) AppendHost(b []byte) []byte {
	b = append(b, o.Flags, o.GSOType)
	b = binary.NativeEndian.AppendUint16(b, o.HdrLen)
	b = binary.NativeEndian.AppendUint16(b, o.GSOSize)
	b = binary.NativeEndian.AppendUint16(b, o.CsumStart)
	return binary.NativeEndian.AppendUint16(b, o.CsumOffset)
}

// ParseWire decodes the encoding for the wire. It does not check that the metadata
// fits a packet: see Check. The error for a short b wraps io.ErrUnexpectedEOF.
func (o *Offload) ParseWire(b []byte) error { return o.parse(b, binary.BigEndian) }

// ParseHost decodes the encoding of a TUN device, as ParseWire does that of the wire.
func (o *Offload) ParseHost(b []byte) error { return o.parse(b, binary.NativeEndian) }

func (o *Offload) parse(b []byte, order binary.ByteOrder) error {
	if len(b) < OffloadLen {
		return fmt.Errorf("exteth: offload metadata of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	*o = Offload{
		Flags:      b[offloadFlagsOff],
		GSOType:    b[offloadGSOTypeOff],
		HdrLen:     order.Uint16(b[offloadHdrLenOff:]),
		GSOSize:    order.Uint16(b[offloadGSOSizeOff:]),
		CsumStart:  order.Uint16(b[offloadCsumStartOff:]),
		CsumOffset: order.Uint16(b[offloadCsumOffsetOff:]),
	}
	return nil
}

// Check returns ErrOffload, wrapped, unless the metadata fits a packet of n bytes: the
// checksum must be within the packet, and a segmentation type must be known and come
// with a size. Call it for every packet whose metadata another node wrote.
func (o Offload) Check(n int) error {
	if o.Flags&OffloadNeedsChecksum != 0 && int(o.CsumStart)+int(o.CsumOffset)+2 > n {
		return fmt.Errorf("%w: checksum at %d+%d of %d bytes", ErrOffload, o.CsumStart, o.CsumOffset, n)
	}
	switch o.GSOType {
	case GSONone:
		return nil
	case GSOTCPv4, GSOTCPv6, GSOTCPv4 | GSOECN, GSOTCPv6 | GSOECN, GSOUDPL4:
	default:
		return fmt.Errorf("%w: segmentation type %d", ErrOffload, o.GSOType)
	}
	if o.GSOSize == 0 || int(o.HdrLen) > n || o.Flags&OffloadNeedsChecksum == 0 {
		return fmt.Errorf("%w: segments of %d bytes after %d of %d bytes of header", ErrOffload, o.GSOSize, o.HdrLen, n)
	}
	return nil
}

// Complete computes the transport checksum that was left undone on packet, as
// for a link that may corrupt data or a capture file, and returns what is
// still left undone: segmentation, if any.
func (o Offload) Complete(packet []byte) (Offload, error) {
	if o.Flags&OffloadNeedsChecksum == 0 {
		return o, nil
	}
	if err := o.Check(len(packet)); err != nil {
		return o, err
	}
	sum := ^checksum.Checksum(packet[o.CsumStart:], 0)
	at := int(o.CsumStart) + int(o.CsumOffset)
	if sum == 0 && o.CsumOffset == udpChecksumOff {
		sum = 0xffff // RFC 768: an all-zero checksum means that there is none
	}
	binary.BigEndian.PutUint16(packet[at:], sum)
	o.Flags &^= OffloadNeedsChecksum
	o.CsumStart, o.CsumOffset = 0, 0
	return o, nil
}

// Offsets and values of headers that tell where a transport checksum is.
const (
	ipv4MinLen     = 20
	ipv4FragOff    = 6
	ipv4ProtoOff   = 9
	ipv6Len        = 40
	ipv6NextOff    = 6
	protoTCP       = 6
	protoUDP       = 17
	tcpChecksumOff = 16
	udpChecksumOff = 6
)

// checksumAt returns where the transport checksum of an IP packet is: the start of the
// transport header, and the offset of the field in it. It knows TCP and UDP directly
// after an unfragmented IP header, and returns false for any other packet.
func checksumAt(packet []byte) (start, offset int, ok bool) {
	if len(packet) < ipv4MinLen {
		return 0, 0, false
	}
	var proto byte
	switch packet[0] >> 4 {
	case 4:
		start, proto = int(packet[0]&0x0f)*4, packet[ipv4ProtoOff]
		fragment := binary.BigEndian.Uint16(packet[ipv4FragOff:])&0x3fff != 0 // MF and offset, RFC 791
		if start < ipv4MinLen || fragment {
			return 0, 0, false
		}
	case 6:
		if len(packet) < ipv6Len {
			return 0, 0, false
		}
		start, proto = ipv6Len, packet[ipv6NextOff]
	default:
		return 0, 0, false
	}
	switch proto {
	case protoTCP:
		offset = tcpChecksumOff
	case protoUDP:
		offset = udpChecksumOff
	default:
		return 0, 0, false
	}
	return start, offset, start+offset+2 <= len(packet)
}

// eagerForm reports whether an eager frame can carry the metadata in its one bit,
// hasChecksum: nothing is left undone, or only a checksum that checksumAt finds.
func (o Offload) eagerForm(packet []byte) (hasChecksum, ok bool) {
	if o.GSOType != GSONone {
		return false, false
	}
	if o.Flags&OffloadNeedsChecksum == 0 {
		return false, true
	}
	start, offset, found := checksumAt(packet)
	return true, found && start == int(o.CsumStart) && offset == int(o.CsumOffset)
}
