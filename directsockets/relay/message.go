package relay

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"

	"exnet/directsockets/segment"
	"exnet/fabric/atu"
)

// kind is the type of a VELO message. Those up to kindLast are the tags of a segment's
// messages. The zero kind is invalid. In ControlVPID there is kindNote only.
type kind uint8

const (
	kindBack     = kind(segment.TagRMAAvail) // 4
	kindLast     = kind(segment.TagPromote)  // 7
	kindMark     = kindLast + 1
	kindSelect   = kindLast + 2
	kindOpen     = kindLast + 3
	kindAttached = kindLast + 4
	kindDrop     = kindLast + 5
	kindBye      = kindLast + 6
	kindFence    = kindLast + 7
	kindStage    = kindLast + 8
	kindNote     = kindLast + 8
)

// User tags.
const (
	tagMore   = 0 // of a NOTE
	tagEnd    = 1
	tagGone   = 0 // of a DROP: nobody has the connection any more
	tagRefuse = 1 // the server's program takes no such segment
	tagLost   = 2 // who says so has given it up: what was on its way is lost
	tagAnswer = 0 // of a STAGE: an ANSWER
	tagBatch  = 1
	tagTaken  = 2
	tagLend   = 3
	tagHello  = 4
	tagResume = 5
	tagOver   = 6
	tagJoined = 7
	tagRule   = 0 // of an OPEN: a rule sends the connection through the fabric
	tagRDMA   = 1 // its link does
	tagPauses = 2 // beside either of these, and of an ATTACHED: the program knows PAUSE, and so does its node
)

// Offsets.
const (
	backConsumedOff = 0 // uint64
	backFreedOff    = 8 // uint64
	backLen         = 16

	markFlagsOff = 0 // uint8
	markPartOff  = 1 // uint8
	markByteOff  = 4 // uint32
	markSlotOff  = 8 // uint64
	markLen      = 16

	idLen = 4 // DROP, FENCE: uint32

	selectIDOff     = 0  // uint32
	selectKeyOff    = 4  // uint32
	selectNumberOff = 8  // uint64
	selectFromOff   = 16 // uint32
	selectLen       = 20

	openIDOff     = 0  // uint32
	openNLAOff    = 4  // uint64
	openSlotsOff  = 12 // uint32
	openRingOff   = 16 // uint32
	openOfferOff  = 20 // uint32
	openNonceOff  = 24 // 16 bytes
	openClientOff = 40 // 16 bytes
	openServerOff = 56 // 16 bytes
	openPortsOff  = 72 // uint16, client's, then server's
	openKeyOff    = 76 // uint32
	openLen       = 80

	batchPlaceOff  = 0  // uint32
	batchLenOff    = 4  // uint32
	batchNumberOff = 8  // uint32
	batchSumOff    = 12 // uint32
	batchLen       = 16

	takenPlaceOff  = 0 // uint32
	takenNumberOff = 4 // uint32
	takenLen       = 8

	demotePauses = 1 // DEMOTE: it is PAUSE
	demoteOff    = 2 // beside that: its sender is switched off, as MARK says

	infoPutOff = 0 // uint32
	infoOff    = 4 // the segment's RMA_INFO, and its data

	lendLen = 8 // uint64

	overLeft = 1 // OVER: see Engine.noteParted

	answerIDOff     = 0 // uint32
	answerNumberOff = 4 // uint32
	answerLen       = 8

	resumeIDOff       = 0  // uint32
	resumeKeyOff      = 4  // uint32
	resumeFromOff     = 8  // uint32
	resumeNumberOff   = 12 // uint32
	resumeMessagesOff = 16 // uint64
	resumeAdvancesOff = 24 // uint64
	resumeGotOff      = 32 // uint64
	resumeNLAOff      = 40 // uint64
	resumeLen         = 48

	attachedIDOff  = 0  // uint32
	attachedFarOff = 4  // uint32
	attachedNLAOff = 8  // uint64
	attachedKeyOff = 16 // uint32
	attachedLen    = 20

	joinedIDOff  = 0 // uint32
	joinedKeyOff = 4 // uint32
	joinedLen    = 8
)

// back is what a program has consumed.
type back struct{ consumed, freed uint64 }

func (b back) append(p []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(p, b.consumed), b.freed)
}

func parseBack(p []byte) (b back, err error) {
	if err := checkLength(p, backLen); err != nil {
		return b, err
	}
	return back{binary.LittleEndian.Uint64(p[backConsumedOff:]), binary.LittleEndian.Uint64(p[backFreedOff:])}, nil
}

func appendMark(p []byte, m segment.Mark) []byte {
	p = append(p, uint8(m.Flags), 0, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, m.Off)
	return binary.LittleEndian.AppendUint64(p, m.Slot)
}

// appendPart appends PART: the last MARK of a node that takes no more of its program. The receiver
// is to do the same.
func appendPart(p []byte, m segment.Mark) []byte {
	p = appendMark(p, m)
	p[len(p)-markLen+markPartOff] = 1
	return p
}

// isPart reports whether a MARK that parseMark has parsed is a PART.
func isPart(p []byte) bool { return p[markPartOff] != 0 }

func parseMark(p []byte) (m segment.Mark, err error) {
	if err := checkLength(p, markLen); err != nil {
		return m, err
	}
	return segment.Mark{
		Flags: segment.MarkFlags(p[markFlagsOff]),
		Off:   binary.LittleEndian.Uint32(p[markByteOff:]), Slot: binary.LittleEndian.Uint64(p[markSlotOff:]),
	}, nil
}

func parseID(p []byte) (uint32, error) {
	if err := checkLength(p, idLen); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p), nil
}

// parseAnswer parses the answer to a FENCE: whose, and its number.
func parseAnswer(p []byte) (id, number uint32, err error) {
	if err := checkLength(p, answerLen); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(p[answerIDOff:]), binary.LittleEndian.Uint32(p[answerNumberOff:]), nil
}

// selection names the connection that the messages after it are for, until the next one: its number
// and key, as their receiver has given them, how many messages for it have come before, and what
// their sender numbers it.
type selection struct {
	id, key uint32
	number  uint64
	from    uint32
}

func (s selection) append(p []byte) []byte {
	return appendID(binary.LittleEndian.AppendUint64(appendID(appendID(p, s.id), s.key), s.number), s.from)
}

func parseSelection(p []byte) (s selection, err error) {
	if err := checkLength(p, selectLen); err != nil {
		return s, err
	}
	return selection{
		selectedID(p), binary.LittleEndian.Uint32(p[selectKeyOff:]), binary.LittleEndian.Uint64(p[selectNumberOff:]),
		binary.LittleEndian.Uint32(p[selectFromOff:]),
	}, nil
}

// selectedID is the connection that a SELECT names.
func selectedID(p []byte) uint32 { return binary.LittleEndian.Uint32(p[selectIDOff:]) }

// batch says that n messages were put into a place: the batch's sequence number in its channel, and
// the checksum of its bytes.
type batch struct{ place, n, number, sum uint32 }

func (b batch) append(p []byte) []byte {
	return appendID(appendID(appendID(appendID(p, b.place), b.n), b.number), b.sum)
}

func parseBatch(p []byte) (b batch, err error) {
	if err := checkLength(p, batchLen); err != nil {
		return b, err
	}
	at := func(off int) uint32 { return binary.LittleEndian.Uint32(p[off:]) }
	return batch{place: at(batchPlaceOff), n: at(batchLenOff), number: at(batchNumberOff), sum: at(batchSumOff)}, nil
}

// castagnoli is the polynomial that CPUs have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a batch: CRC-32C (RFC 3720).
func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// parseTaken parses which place the peer has taken, and the number of the batch in it.
func parseTaken(p []byte) (place, number uint32, err error) {
	if err := checkLength(p, takenLen); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(p[takenPlaceOff:]), binary.LittleEndian.Uint32(p[takenNumberOff:]), nil
}

func appendNLA(p []byte, a atu.NLA) []byte { return binary.LittleEndian.AppendUint64(p, uint64(a)) }

// parseNLA parses where a node takes batches.
func parseNLA(p []byte) (atu.NLA, error) {
	if err := checkLength(p, lendLen); err != nil {
		return 0, err
	}
	return atu.NLA(binary.LittleEndian.Uint64(p)), nil
}

// resume says where a connection is to go on: its number and key, as the receiver of this message
// gave them; the number that its sender gave it; the sequence number of this RESUME among those of
// the connection; which messages have come; and where the ring is now.
type resume struct {
	id, key, from, number uint32
	messages, advances    uint64 // of the receiver's program: see segment.Relay.Position
	got                   uint64 // of those that have stamps
	nla                   atu.NLA
}

func (r resume) append(p []byte) []byte {
	p = appendID(appendID(appendID(appendID(p, r.id), r.key), r.from), r.number)
	for _, n := range []uint64{r.messages, r.advances, r.got, uint64(r.nla)} {
		p = binary.LittleEndian.AppendUint64(p, n)
	}
	return p
}

func parseResume(p []byte) (r resume, err error) {
	if err := checkLength(p, resumeLen); err != nil {
		return r, err
	}
	id := func(off int) uint32 { return binary.LittleEndian.Uint32(p[off:]) }
	number := func(off int) uint64 { return binary.LittleEndian.Uint64(p[off:]) }
	return resume{
		id: id(resumeIDOff), key: id(resumeKeyOff), from: id(resumeFromOff), number: id(resumeNumberOff),
		messages: number(resumeMessagesOff), advances: number(resumeAdvancesOff), got: number(resumeGotOff),
		nla: atu.NLA(number(resumeNLAOff)),
	}, nil
}

// open asks a node to be the other end of a connection.
type open struct {
	id    uint32 // of who asks
	nla   atu.NLA
	size  segment.Config
	offer uint32
	info  segment.Info
	key   uint32 // of what is said to who asks
}

func (o *open) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint32(p, o.id)
	p = binary.LittleEndian.AppendUint64(p, uint64(o.nla))
	p = binary.LittleEndian.AppendUint32(p, uint32(o.size.Slots))
	p = binary.LittleEndian.AppendUint32(p, uint32(o.size.Ring))
	p = binary.LittleEndian.AppendUint32(p, o.offer)
	p = append(p, o.info.Nonce[:]...)
	client, server := o.info.Client.Addr().As16(), o.info.Server.Addr().As16()
	p = append(append(p, client[:]...), server[:]...)
	p = binary.LittleEndian.AppendUint16(p, o.info.Client.Port())
	p = binary.LittleEndian.AppendUint16(p, o.info.Server.Port())
	return appendID(p, o.key)
}

func parseOpen(p []byte) (o open, err error) {
	if err := checkLength(p, openLen); err != nil {
		return o, err
	}
	end := func(off, i int) netip.AddrPort {
		addr := netip.AddrFrom16([16]byte(p[off:])).Unmap()
		return netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(p[openPortsOff+2*i:]))
	}
	return open{
		id:    binary.LittleEndian.Uint32(p[openIDOff:]),
		nla:   atu.NLA(binary.LittleEndian.Uint64(p[openNLAOff:])),
		size:  segment.Config{Slots: int(binary.LittleEndian.Uint32(p[openSlotsOff:])), Ring: int(binary.LittleEndian.Uint32(p[openRingOff:]))},
		offer: binary.LittleEndian.Uint32(p[openOfferOff:]),
		info:  segment.Info{Nonce: [16]byte(p[openNonceOff:]), Client: end(openClientOff, 0), Server: end(openServerOff, 1)},
		key:   binary.LittleEndian.Uint32(p[openKeyOff:]),
	}, nil
}

// attached says that the server's program has the segment.
type attached struct {
	id, far uint32
	nla     atu.NLA
	key     uint32 // of what is said to who says it
}

func (a attached) append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint32(p, a.id)
	p = binary.LittleEndian.AppendUint32(p, a.far)
	return appendID(binary.LittleEndian.AppendUint64(p, uint64(a.nla)), a.key)
}

func parseAttached(p []byte) (a attached, err error) {
	if err := checkLength(p, attachedLen); err != nil {
		return a, err
	}
	return attached{
		id: binary.LittleEndian.Uint32(p[attachedIDOff:]), far: binary.LittleEndian.Uint32(p[attachedFarOff:]),
		nla: atu.NLA(binary.LittleEndian.Uint64(p[attachedNLAOff:])), key: binary.LittleEndian.Uint32(p[attachedKeyOff:]),
	}, nil
}

// parseJoined parses that the client has attached: which connection's, and the key that its
// receiver has given it.
func parseJoined(p []byte) (id, key uint32, err error) {
	if err := checkLength(p, joinedLen); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(p[joinedIDOff:]), binary.LittleEndian.Uint32(p[joinedKeyOff:]), nil
}

// checkLength checks the length of a payload.
func checkLength(p []byte, n int) error {
	if len(p) < n {
		return fmt.Errorf("%w: %d bytes instead of %d: %w", errPeer, len(p), n, io.ErrUnexpectedEOF)
	}
	if len(p) > n {
		return fmt.Errorf("%w: %d bytes instead of %d", errPeer, len(p), n)
	}
	return nil
}

// parseInfo parses an RMA_INFO: how many bytes the PUT has that it waits for, 0: none, and what the
// segment's message is, with its data if that comes with it.
func parseInfo(p []byte) (put int, info []byte, err error) {
	if len(p) < infoOff {
		return 0, nil, fmt.Errorf("%w: an RMA_INFO of %d bytes", errPeer, len(p))
	}
	return int(binary.LittleEndian.Uint32(p[infoPutOff:])), p[infoOff:], nil
}
