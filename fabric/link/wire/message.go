package wire

import (
	"encoding/binary"
	"fmt"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/rma"
)

// kind says what a message is. Zero is none.
type kind uint8

const (
	kindOpen    kind = 1 + iota // flow, from, to
	kindOpened                  // flow, id, limit (0: nobody is there)
	kindVELO                    // flow, status word, payload
	kindReturn                  // flow, total
	kindDown                    // flow
	kindGet                     // op, from, to, remote, length, flags
	kindData                    // op, offset, piece of a GET's data
	kindGetEnd                  // op, status
	kindPut                     // op, from, to, remote, length, flags
	kindPutData                 // op, offset, piece of a PUT's data
	kindPutEnd                  // op, status
	kindProbe                   // nothing: it is acknowledged
	kindEnd
)

// A message, little endian: the kind (1 byte), its number (4 bytes), and
//
//	Open     from 2, to 2
//	Opened   flow ID 2, limit 4
//	VELO     status word 8, payload
//	Return   total 8
//	Get, Put from 2, to 2, remote NLA 8, length 4, flags 1 (1 notify, 2 immediate)
//	Data     offset 4, data
//	End      status 1
const (
	messageHead = 5
	fragmentLen = messageHead + 4 // before the data of a fragment
)

// messageLens are the lengths of messages, of those with data without it.
var messageLens = [kindEnd]int{
	kindOpen: messageHead + 4, kindOpened: messageHead + 6, kindVELO: messageHead + 8, kindReturn: messageHead + 8,
	kindDown: messageHead, kindGet: messageHead + 17, kindData: fragmentLen, kindGetEnd: messageHead + 1,
	kindPut: messageHead + 17, kindPutData: fragmentLen, kindPutEnd: messageHead + 1, kindProbe: messageHead,
}

const (
	requestNotify    = 1
	requestImmediate = 2
)

// message is any message; each kind uses some of the fields.
type message struct {
	kind     kind
	number   uint32 // of the flow or operation
	from, to fabric.VPID
	id       uint16 // of the flow, at its target
	word     uint64 // status word; total; NLA
	n        uint32 // limit, length, offset
	flags    uint8
	status   fabric.Status
	data     []byte
}

func appendHead(b []byte, k kind, number uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(b, byte(k)), number)
}

// append appends the encoding of m to b.
func (m *message) append(b []byte) []byte {
	b = appendHead(b, m.kind, m.number)
	switch m.kind {
	case kindOpen:
		b = binary.LittleEndian.AppendUint16(b, uint16(m.from))
		b = binary.LittleEndian.AppendUint16(b, uint16(m.to))
	case kindOpened:
		b = binary.LittleEndian.AppendUint16(b, m.id)
		b = binary.LittleEndian.AppendUint32(b, m.n)
	case kindVELO, kindReturn:
		b = binary.LittleEndian.AppendUint64(b, m.word)
	case kindGet, kindPut:
		b = binary.LittleEndian.AppendUint16(b, uint16(m.from))
		b = binary.LittleEndian.AppendUint16(b, uint16(m.to))
		b = binary.LittleEndian.AppendUint64(b, m.word)
		b = binary.LittleEndian.AppendUint32(b, m.n)
		b = append(b, m.flags)
	case kindData, kindPutData:
		b = binary.LittleEndian.AppendUint32(b, m.n)
	case kindGetEnd, kindPutEnd:
		b = append(b, byte(m.status))
	}
	return append(b, m.data...)
}

// parse decodes b, the message of an intact packet: an error is the peer's fault.
// The data lends b.
func (m *message) parse(b []byte) error {
	if len(b) < messageHead {
		return fmt.Errorf("wire: message of %d bytes", len(b))
	}
	k := kind(b[0])
	if k == 0 || k >= kindEnd {
		return fmt.Errorf("wire: message of kind %d", k)
	}
	data, most := len(b)-messageLens[k], 0
	switch k {
	case kindVELO:
		most = link.VELOPayload
	case kindData, kindPutData:
		most = rma.MTU
	}
	if data < 0 || data > most {
		return fmt.Errorf("wire: message of kind %d and %d bytes", k, len(b))
	}
	*m = message{kind: k, number: binary.LittleEndian.Uint32(b[1:])}
	f := b[messageHead:]
	switch k {
	case kindOpen:
		m.from, m.to = fabric.VPID(binary.LittleEndian.Uint16(f)), fabric.VPID(binary.LittleEndian.Uint16(f[2:]))
	case kindOpened:
		m.id, m.n = binary.LittleEndian.Uint16(f), binary.LittleEndian.Uint32(f[2:])
	case kindVELO, kindReturn:
		m.word, m.data = binary.LittleEndian.Uint64(f), f[8:]
	case kindGet, kindPut:
		m.from, m.to = fabric.VPID(binary.LittleEndian.Uint16(f)), fabric.VPID(binary.LittleEndian.Uint16(f[2:]))
		m.word, m.n, m.flags = binary.LittleEndian.Uint64(f[4:]), binary.LittleEndian.Uint32(f[12:]), f[16]
		if m.n < 1 || m.n > rma.MaxTransfer {
			return fmt.Errorf("wire: transfer of %d bytes", m.n)
		}
	case kindData, kindPutData:
		m.n, m.data = binary.LittleEndian.Uint32(f), f[4:]
	case kindGetEnd, kindPutEnd:
		if m.status = fabric.Status(f[0]); !m.status.Valid() {
			return fmt.Errorf("wire: %v", m.status)
		}
	}
	return nil
}

func getMessage(number uint32, g link.Get) *message {
	m := &message{kind: kindGet, number: number, from: g.From, to: g.To, word: uint64(g.Remote), n: uint32(g.Len)}
	if g.Notify {
		m.flags = requestNotify
	}
	return m
}

func (m *message) asGet() link.Get {
	return link.Get{From: m.from, To: m.to, Remote: atu.NLA(m.word), Len: int(m.n), Notify: m.flags&requestNotify != 0}
}

func putMessage(number uint32, p link.Put, n int) *message {
	m := &message{kind: kindPut, number: number, from: p.From, to: p.To, word: uint64(p.Remote), n: uint32(n)}
	if p.Notify {
		m.flags |= requestNotify
	}
	if p.Immediate {
		m.flags |= requestImmediate
	}
	return m
}

func (m *message) asPut() link.Put {
	return link.Put{
		From: m.from, To: m.to, Remote: atu.NLA(m.word),
		Notify: m.flags&requestNotify != 0, Immediate: m.flags&requestImmediate != 0,
	}
}
