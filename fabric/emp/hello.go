package emp

import (
	"encoding/binary"
	"fmt"
	"io"

	"exnet/fabric"
)

// The hello is the first message of each side of a connection; the connecting side
// sends first. Numbers are little-endian.
//
//	 0       4         6       8      10      12           20
//	┌───────┬─────────┬───────┬──────┬───────┬────────────┬────────┐
//	│ magic │ version │ status│ node │ zero  │ token      │ reason │
//	└───────┴─────────┴───────┴──────┴───────┴────────────┴────────┘
const (
	helloMagicOff   = 0
	helloVersionOff = 4
	helloStatusOff  = 6 // 0: accepted; 1: refused, a reason follows
	helloNodeOff    = 8
	helloTokenOff   = 12
	helloLen        = 20

	helloMagic = "EXNE"
	// maxReason bounds the text.
	maxReason = 200
)

// hello says who is at the other end.
type hello struct {
	Version uint16
	Node    fabric.NodeID
	Token   Token
	Refused string // why the sender refuses the connection; "" if it does not
}

// AppendBinary appends the encoding of h to b.
func (h hello) AppendBinary(b []byte) ([]byte, error) {
	status := uint16(0)
	if h.Refused != "" {
		status = 1
	}
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	b = binary.LittleEndian.AppendUint16(b, status)
	b = binary.LittleEndian.AppendUint16(b, uint16(h.Node))
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Token))
	return append(b, h.Refused[:min(len(h.Refused), maxReason)]...), nil
}

// UnmarshalBinary decodes b, which is a whole message. On error it leaves h unchanged.
func (h *hello) UnmarshalBinary(b []byte) error {
	if len(b) < helloLen {
		return fmt.Errorf("emp: %w: %d bytes: %w", ErrHello, len(b), io.ErrUnexpectedEOF)
	}
	status := binary.LittleEndian.Uint16(b[helloStatusOff:])
	switch {
	case string(b[helloMagicOff:helloVersionOff]) != helloMagic:
		return fmt.Errorf("emp: %w: unknown first bytes %x", ErrHello, b[:helloVersionOff])
	case status > 1, (status == 1) != (len(b) > helloLen), len(b) > helloLen+maxReason:
		return fmt.Errorf("emp: %w: status %d with %d bytes", ErrHello, status, len(b))
	}
	*h = hello{
		Version: binary.LittleEndian.Uint16(b[helloVersionOff:]),
		Node:    fabric.NodeID(binary.LittleEndian.Uint16(b[helloNodeOff:])),
		Token:   Token(binary.LittleEndian.Uint64(b[helloTokenOff:])),
		Refused: string(b[helloLen:]),
	}
	return nil
}
