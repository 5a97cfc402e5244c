package stream

import (
	"encoding/binary"
	"fmt"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// kind says what a message is. Zero is none.
type kind uint8

const (
	kindVELO    kind = 1 + iota // a VELO message of a flow
	kindMailbox                 // a mailbox was opened, or closed
	kindOpen                    // a flow begins
	kindReturn                  // messages of a flow were consumed
	kindDown                    // the mailbox of a flow is closed
	kindGet                     // GET request
	kindGetData                 // a chunk of the response to a GET
	kindGetEnd                  // a GET was refused
	kindPutData                 // a chunk of a PUT, with the request
	kindPutEnd                  // how a PUT has ended
	kindPing                    // a sign of life is wanted
	kindPong                    // here it is
	kindEnd
)

// Lengths of messages, of those with data without it. See doc.go.
const (
	veloLen    = 12
	mailboxLen = 8
	openLen    = 8
	returnLen  = 12
	downLen    = 4
	getLen     = 24
	getDataLen = 12
	getEndLen  = 8
	putDataLen = 24
	putEndLen  = 8
	beatLen    = 12

	// maxMessage is the longest message that is taken whole; of the others the head is.
	maxMessage = veloLen + link.VELOPayload
)

var headLens = [kindEnd]int{
	kindVELO: veloLen, kindMailbox: mailboxLen, kindOpen: openLen, kindReturn: returnLen, kindDown: downLen,
	kindGet: getLen, kindGetData: getDataLen, kindGetEnd: getEndLen,
	kindPutData: putDataLen, kindPutEnd: putEndLen, kindPing: beatLen, kindPong: beatLen,
}

const (
	// chunkSize is how much of a transfer is sent at a time, so that others have their
	// turn: a frame of 64 KB with its head is one chunk. The last one has the rest.
	chunkSize = 1<<16 + 1<<12
	maxChunks = (rma.MaxTransfer + chunkSize - 1) / chunkSize

	// maxFlows is how many pairs of mailboxes may open a flow over a link in its life, in
	// each direction.
	maxFlows = 1 << 16
	// maxCredits is how many messages of a flow may be unread.
	maxCredits = 1 << 16
)

const (
	flagNotify    = 1 << iota // responder or completer writes a notification
	flagImmediate             // immediate PUT
)

// message is any message; each kind uses some of the fields.
type message struct {
	kind     kind
	flags    uint8
	status   fabric.Status
	flow     uint16 // or the VPID of a mailbox
	from, to fabric.VPID
	op       uint32
	n        int    // limit; length of a transfer
	off      int    // of a chunk
	word     uint64 // status word; total; NLA; time
	payload  []byte // of VELO
}

func appendHead(b []byte, k kind, flags uint8, aux uint16) []byte {
	return append(b, byte(k), flags, byte(aux), byte(aux>>8))
}

// append appends the encoding of m to b, of a chunk without the data.
func (m *message) append(b []byte) []byte {
	le := binary.LittleEndian
	switch m.kind {
	case kindVELO:
		b = le.AppendUint64(appendHead(b, m.kind, 0, m.flow), m.word)
		b = append(b, m.payload...)
	case kindMailbox:
		b = le.AppendUint32(appendHead(b, m.kind, 0, m.flow), uint32(m.n))
	case kindOpen:
		b = appendHead(b, m.kind, 0, m.flow)
		b = le.AppendUint16(le.AppendUint16(b, uint16(m.from)), uint16(m.to))
	case kindReturn:
		b = le.AppendUint64(appendHead(b, m.kind, 0, m.flow), m.word)
	case kindDown:
		b = appendHead(b, m.kind, 0, m.flow)
	case kindGet:
		b = le.AppendUint32(appendHead(b, m.kind, m.flags, 0), m.op)
		b = le.AppendUint16(le.AppendUint16(b, uint16(m.from)), uint16(m.to))
		b = le.AppendUint32(le.AppendUint64(b, m.word), uint32(m.n))
	case kindGetData:
		b = le.AppendUint32(appendHead(b, m.kind, 0, 0), m.op)
		b = le.AppendUint32(b, uint32(m.off))
	case kindPutData:
		b = le.AppendUint32(appendHead(b, m.kind, m.flags, uint16(m.off/chunkSize)), m.op)
		b = le.AppendUint16(le.AppendUint16(b, uint16(m.from)), uint16(m.to))
		b = le.AppendUint32(le.AppendUint64(b, m.word), uint32(m.n))
	case kindGetEnd, kindPutEnd:
		b = le.AppendUint32(appendHead(b, m.kind, uint8(m.status), 0), m.op)
	case kindPing, kindPong:
		b = le.AppendUint64(appendHead(b, m.kind, 0, 0), m.word)
	}
	return b
}

// decode decodes the message that b begins with, and returns how much of b it was; 0:
// not all of it is there. The data of a chunk is left in b. A payload lends b. An error
// is the peer's fault.
func (m *message) decode(b []byte) (int, error) {
	if len(b) < 4 {
		return 0, nil
	}
	k := kind(b[0])
	if k == 0 || k >= kindEnd {
		return 0, fmt.Errorf("message of kind %d", k)
	}
	n := headLens[k]
	if len(b) < n {
		return 0, nil
	}
	le := binary.LittleEndian
	*m = message{kind: k}
	switch k {
	case kindVELO, kindMailbox, kindOpen, kindReturn, kindDown:
		m.flow = le.Uint16(b[2:])
	}
	switch k {
	case kindVELO:
		m.word = le.Uint64(b[4:])
		size := velo.WordLen(m.word)
		if size > link.VELOPayload {
			return 0, fmt.Errorf("VELO message of %d bytes", size)
		}
		if len(b) < n+size {
			return 0, nil
		}
		m.payload = b[n : n+size : n+size]
		n += size
	case kindMailbox:
		m.n = int(le.Uint32(b[4:]))
		if !fabric.VPID(m.flow).Valid() || m.n > maxCredits {
			return 0, fmt.Errorf("mailbox %d of %d credits", m.flow, m.n)
		}
	case kindOpen:
		m.from, m.to = fabric.VPID(le.Uint16(b[4:])), fabric.VPID(le.Uint16(b[6:]))
		if !m.from.Valid() || !m.to.Valid() {
			return 0, fmt.Errorf("flow from VPID %d to %d", m.from, m.to)
		}
	case kindReturn, kindPing, kindPong:
		m.word = le.Uint64(b[4:])
	case kindGetData:
		m.op, m.off = le.Uint32(b[4:]), int(le.Uint32(b[8:]))
		if m.off%chunkSize != 0 || m.off >= rma.MaxTransfer {
			return 0, fmt.Errorf("chunk at %d", m.off)
		}
	case kindGet, kindPutData:
		return n, m.parseRequest(b)
	case kindGetEnd, kindPutEnd:
		m.op, m.status = le.Uint32(b[4:]), fabric.Status(b[1])
		if !m.status.Valid() || k == kindGetEnd && m.status == fabric.StatusOK {
			return 0, fmt.Errorf("operation %d ended with %v", m.op, m.status)
		}
	}
	return n, nil
}

// parseRequest decodes what GET and PUT have in common.
func (m *message) parseRequest(b []byte) error {
	le := binary.LittleEndian
	m.flags, m.op = b[1]&(flagNotify|flagImmediate), le.Uint32(b[4:])
	m.from, m.to = fabric.VPID(le.Uint16(b[8:])), fabric.VPID(le.Uint16(b[10:]))
	m.word, m.n = le.Uint64(b[12:]), int(le.Uint32(b[20:]))
	if m.kind == kindPutData {
		m.off = int(le.Uint16(b[2:])) * chunkSize
	}
	if m.n < 1 || m.n > rma.MaxTransfer || m.off >= m.n {
		return fmt.Errorf("transfer of %d bytes, at %d", m.n, m.off)
	}
	return nil
}

// chunkLen is how long the chunk at off of a transfer of n bytes is.
func chunkLen(n, off int) int { return min(chunkSize, n-off) }

func getMessage(op uint32, g *link.Get) message {
	m := message{kind: kindGet, op: op, from: g.From, to: g.To, word: uint64(g.Remote), n: g.Len}
	if g.Notify {
		m.flags = flagNotify
	}
	return m
}

func (m *message) asGet() link.Get {
	return link.Get{From: m.from, To: m.to, Remote: atu.NLA(m.word), Len: m.n, Notify: m.flags&flagNotify != 0}
}

func putMessage(op uint32, p *link.Put, n int) message {
	m := message{kind: kindPutData, op: op, from: p.From, to: p.To, word: uint64(p.Remote), n: n}
	if p.Notify {
		m.flags |= flagNotify
	}
	if p.Immediate {
		m.flags |= flagImmediate
	}
	return m
}

func (m *message) asPut() link.Put {
	return link.Put{
		From: m.from, To: m.to, Remote: atu.NLA(m.word),
		Notify: m.flags&flagNotify != 0, Immediate: m.flags&flagImmediate != 0,
	}
}
