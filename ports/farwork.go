package ports

import (
	"encoding/binary"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/rma"
	"exnet/foreign"
	"exnet/node/rpc"
)

// farOut is the flow from a port of another host to ours. It carries the far port's messages and
// the notifications of our port's operations.
type farOut struct {
	*writer
	mu    sync.Mutex
	ended chan struct{}
}

// writeSlot waits for a free slot and writes it. It returns false if a port has ended.
func (o *farOut) writeSlot(word uint64, payload []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for pause := roomFirst; !o.hasRoom(); pause = min(2*pause, roomLast) {
		select {
		case <-o.ended:
			return false
		case <-time.After(pause):
		}
	}
	o.write(word, payload)
	return true
}

// tryPut writes a slot if one is free now, and returns false if none is.
//
// +checklocksignore: the analyzer does not know TryLock
func (o *farOut) tryPut(word uint64, payload []byte) bool {
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	if !o.hasRoom() {
		return false
	}
	o.write(word, payload)
	return true
}

// writeNotification writes a notification: two words, and the size of the whole operation in
// bytes.
func (o *farOut) writeNotification(n [2]uint64, size int) bool {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n[0]), n[1])
	return o.writeSlot(16|uint64(size)<<8, b)
}

// farChunk is how many bytes of a PUT or a GET a message carries.
const farChunk = 32 << 10

// serveRequests carries out the far port's requests in order, until either port has ended.
func (f *farPair) serveRequests(out *farOut) {
	moving := make(chan struct{}, farWindow)
	for {
		select {
		case m := <-f.requests:
			if m.Op == wire.OpFarSlot {
				if !f.serveSlot(out, m) {
					return
				}
				continue
			}
			if m.Op == wire.OpFarGive || m.Op == wire.OpFarTake { // up to farWindow of them run at the same time
				select {
				case moving <- struct{}{}:
				case <-f.ended:
					f.refuseRequest(m)
					continue
				}
				f.queued.Add(-1)
				go func() {
					defer func() { <-moving }()
					r := wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Unit: m.Unit, Status: f.moveLocal(out, m)}
					_ = f.node.send(r, nil) // FarDown ends the rest
				}()
				continue
			}
			if m.Op == wire.OpFarGone {
				s := f.node.server
				s.mu.Lock()
				f.handleEvent(pairParted)
				s.mu.Unlock()
				return
			}
			r, data := f.answerRequest(out, m)
			r.Op, r.Number, r.Unit = m.Op, m.Number|rpc.Answered, m.Unit
			if f.node.send(r, data) != nil {
				return // FarDown ends the rest
			}
			f.queued.Add(-1)
		case <-f.ended:
			f.refuseAll()
			return
		}
	}
}

// refuseAll refuses the requests that are queued when the port has ended. No more are queued
// after that: nobody finds the pair any longer.
func (f *farPair) refuseAll() {
	for {
		select {
		case m := <-f.requests:
			f.refuseRequest(m)
		default:
			return
		}
	}
}

// refuseRequest answers one request with "no such port".
func (f *farPair) refuseRequest(m farMessage) {
	if m.Op == wire.OpFarSlot {
		_ = f.node.send(wire.Message{Op: wire.OpFarTaken, Status: wire.StatusNoPort, Unit: m.Unit, C: m.C}, nil)
	} else if m.Op != wire.OpFarGone {
		_ = f.node.send(wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Unit: m.Unit, Status: wire.StatusNoPort}, nil)
	}
}

// answerRequest carries out a request and returns the answer and the data that follows it.
func (f *farPair) answerRequest(out *farOut, m farMessage) (r wire.Message, data []byte) {
	if m.Op == wire.OpFarTell {
		return wire.Message{Status: f.deliverSlot(out, m)}, nil
	}
	r.Status = wire.StatusInvalid
	if f.pair.unit != fabric.UnitRMA {
		return r, nil
	}
	out.ownerOps(1)
	defer out.ownerOps(^uint64(0))
	all := f.ours.mapped.ofPort(f.ours.vpid)
	ok := false
	var err error
	switch m.Op {
	case wire.OpFarPut:
		ok, err = all.Each(atu.NLA(m.B), len(m.data), atu.Write, f.node.id, func(off int, piece foreign.Memory) error {
			wire.FillInOrder(piece, m.data[off:])
			return nil
		})
	case wire.OpFarGet:
		if m.C > farChunk {
			return r, nil
		}
		data = make([]byte, m.C)
		ok, err = all.Each(atu.NLA(m.B), len(data), atu.Read, f.node.id, func(off int, piece foreign.Memory) error {
			piece.CopyTo(data[off:])
			return nil
		})
	case wire.OpFarLock:
		r.A, r.B, ok = f.lock(m.B, m.C)
	}
	switch {
	case ok && err == nil:
		r.Status = wire.StatusOK
	default:
		r.Status, data = wire.StatusDenied, nil
	}
	return r, data
}

// deliverSlot writes a slot that the far port has sent. m.B is its status word.
func (f *farPair) deliverSlot(out *farOut, m farMessage) wire.Status {
	_, size := wire.Slots(f.pair.unit)
	if n := m.B & (1<<7 - 1); len(m.data) > size-8 || int(n) > len(m.data) {
		return wire.StatusInvalid
	}
	if !out.writeSlot(m.B, m.data) {
		return wire.StatusNoPort
	}
	return wire.StatusOK
}

// Locks: SPEC.md 4.
const locks = 16384

// lock does a fetch-compare-and-add on a lock of our port. The upper half of values is compare,
// the lower half is add. It returns whether it added (done), and the value of the lock.
func (f *farPair) lock(number, values uint64) (done, value uint64, ok bool) {
	if number >= locks {
		return 0, 0, false
	}
	compare, add := int32(values>>32), int32(values)
	at := &f.ours.mapped.memory.Memory().Words32(int(number)*4, 1)[0]
	for {
		now := int32(at.Load())
		if now > compare {
			return 0, uint64(uint32(now)), true
		}
		if at.CompareAndSwap(uint32(now), uint32(now+add)) {
			return 1, uint64(uint32(now + add)), true
		}
	}
}

// pump carries out our port's operations on the far port in order, until either port has ended.
// After our port has ended, pump sends at most one flow's length of slots: another process may
// still write to the flow.
func (f *farPair) pump(in *reader, out *farOut) {
	defer f.hasSent()
	window := make(chan func(), farWindow)
	var answers sync.WaitGroup
	answers.Go(func() { // operations overlap, but end in the order in which they began
		for end := range window {
			end()
		}
	})
	var gets sync.WaitGroup
	b := make([]byte, in.size-8)
	for left := in.slots; left > 0; {
		word, ok := in.copyOldest(b)
		if !ok {
			if in.waitForSlot() {
				continue
			}
			if word, ok = in.copyOldest(b); !ok {
				break
			}
		}
		select {
		case <-f.cut:
			left = 0
			continue
		case <-f.ended:
			left--
		default:
		}
		if f.pair.unit == fabric.UnitVELO {
			m := wire.Message{Op: wire.OpFarTell, Unit: f.pair.unit, Addr: f.addr(), A: uint64(f.pair.ours), B: word}
			c, number := f.node.sendRequest(m, b[:min(int(word&(1<<7-1)), len(b))])
			window <- func() { f.node.waitAnswer(c, number, f.cut) }
		} else if o := farOperation(word, b); o.kind == kindGet || o.kind == kindGetQW {
			got := f.beginGet(out, o)
			gets.Add(1)
			window <- func() {
				defer gets.Done()
				f.operate(out, o, <-got)
			}
		} else {
			gets.Wait()
			f.operate(out, o, wire.StatusOK)
		}
		in.releaseOldest()
	}
	close(window)
	answers.Wait()
}

// operation is an operation of our port: SPEC.md 6.
type operation struct {
	kind, spec, modifier, mode uint64
	size                       int
	read, write                uint64
}

// Positions in the status word of an operation.
const (
	opSize, opKind, opSpec, opModifier, opMode = 8, 32, 36, 39, 43
)

func farOperation(word uint64, b []byte) operation {
	return operation{
		kind: word >> opKind & 15, spec: word >> opSpec & 7, modifier: word >> opModifier & 15, mode: word >> opMode & 63,
		size: int(word >> opSize & (1<<24 - 1)),
		read: binary.LittleEndian.Uint64(b), write: binary.LittleEndian.Uint64(b[8:]),
	}
}

// Values of the API (rma2.h).
const (
	kindGet, kindGetQW, kindPut, kindPutQW, kindNotify, kindImmediate, kindLock = 0, 1, 2, 3, 5, 6, 12

	kindGetResponse, kindLockResponse           = 10, 13
	noteRequester, noteResponder, noteCompleter = 1, 2, 4
	replicate                                   = 2 // the modifier NTR
)

// notification makes a notification of the operation: SPEC.md 5.
func (o operation) notification(writer, command, address, rest, bad uint64) [2]uint64 {
	return [2]uint64{address, rest | writer<<48 | command<<51 | o.mode<<55 | bad<<61}
}

// transfers calls f with the notifications of a transfer that begins at start: one for the last
// packet, or one for each.
func (o operation) transfers(writer, command, start uint64, f func([2]uint64) bool) bool {
	step := o.size
	if o.modifier&replicate != 0 {
		step = rma.MTU
	}
	for off := 0; off < o.size; off += step {
		n := min(step, o.size-off)
		last := (n-1)%rma.MTU + 1
		if !f(o.notification(writer, command, start+uint64(off+n-last), uint64(last-1), 0)) {
			return false
		}
	}
	return true
}

// operate carries out an operation and writes its notifications. A GET is over already, with the
// status got. A refused operation has the notification that it would have within a host.
func (f *farPair) operate(out *farOut, o operation, got wire.Status) {
	own := func(n [2]uint64) bool { return out.writeNotification(n, o.size) }
	theirs := func(n [2]uint64) bool {
		m := wire.Message{Op: wire.OpFarTell, B: 16 | uint64(o.size)<<8}
		if o.kind == kindNotify || o.kind == kindLock {
			m.B = 16
		}
		return f.askFarPort(m, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n[0]), n[1])).Status == wire.StatusOK
	}
	var bad uint64
	switch o.kind {
	case kindPut, kindPutQW, kindImmediate:
		out.readerOps(1)
		bad = f.runPut(o, own, theirs)
		out.readerOps(^uint64(0))
	case kindGet, kindGetQW:
		bad = f.finishGet(o, got, own, theirs)
	case kindNotify:
		bad = f.notify(o, own, theirs)
	case kindLock:
		bad = f.lockFar(o, own, theirs)
	default:
		bad = noteRequester
	}
	if bad != 0 {
		own(o.failure(bad))
	}
}

// failure is the notification of an operation that failed with these error bits. As the NIC's, it
// tells of the last packet: where it lies, and its length less one. A lock and a notification move
// no packet, and an immediate PUT has no address.
func (o operation) failure(bad uint64) [2]uint64 {
	writer, at := uint64(noteRequester), o.read
	switch o.kind {
	case kindGet, kindGetQW:
		writer, at = noteCompleter, o.write
	case kindImmediate:
		at = 0
	}
	if o.kind == kindNotify || o.kind == kindLock || o.size == 0 {
		return o.notification(writer, o.kind, 0, 0, bad)
	}
	last := (o.size-1)%rma.MTU + 1
	return o.notification(writer, o.kind, at+uint64(o.size-last), uint64(last-1), bad)
}

// askFarPort sends the far port a request and waits for the answer.
func (f *farPair) askFarPort(m wire.Message, data []byte) farMessage {
	m.Unit, m.Addr, m.A = f.pair.unit, f.addr(), uint64(f.pair.ours)
	return f.node.sendAndWait(m, data, f.cut)
}

// local calls g for each piece of n bytes of our port's memory, from at on. It returns false if
// not all of them are registered.
func (f *farPair) local(at uint64, n int, g func(off int, piece foreign.Memory)) bool {
	self := f.node.server.cfg.Node
	ok, _ := f.ours.mapped.ofPort(f.ours.vpid).Each(atu.NLA(at), n, 0, self, func(off int, piece foreign.Memory) error {
		g(off, piece)
		return nil
	})
	return ok
}

// runPut carries out a PUT. own and theirs write notifications of our port and of the far one.
// It returns the error bits: one bit for the unit (requester, responder, completer) that failed.
func (f *farPair) runPut(o operation, own, theirs func([2]uint64) bool) (bad uint64) {
	b := binary.LittleEndian.AppendUint64(nil, o.read)
	var why wire.Status
	switch {
	case o.kind == kindImmediate && o.size <= len(b):
		why = f.giveBytes(b[:o.size], o.write)
	case o.kind != kindImmediate && f.isRegistered(o.read, o.size):
		why = f.putToFar(o.read, o.write, o.size)
	default:
		return noteRequester
	}
	if why != wire.StatusOK {
		return noteCompleter
	}
	if o.spec&noteCompleter != 0 && !o.transfers(noteCompleter, o.kind, o.write, theirs) {
		return noteCompleter
	}
	if o.spec&noteRequester != 0 {
		start := o.read
		if o.kind == kindImmediate {
			start = 0
		}
		o.transfers(noteRequester, o.kind, start, own)
	}
	return 0
}

// isRegistered returns whether n bytes of our port's memory are registered, and few enough for
// one operation.
func (f *farPair) isRegistered(at uint64, n int) bool {
	return n <= rma.MaxTransfer && f.local(at, n, func(int, foreign.Memory) {})
}

// beginGet starts a GET. The channel yields its status when it is over.
func (f *farPair) beginGet(out *farOut, o operation) <-chan wire.Status {
	ended := make(chan wire.Status, 1)
	out.readerOps(1)
	if !f.isRegistered(o.write, o.size) {
		out.readerOps(^uint64(0))
		ended <- wire.StatusInvalid
		return ended
	}
	go func() {
		why := f.getFromFar(o.read, o.write, o.size)
		out.readerOps(^uint64(0))
		ended <- why
	}()
	return ended
}

// finishGet writes the notifications of a GET that is over, with the status why.
func (f *farPair) finishGet(o operation, why wire.Status, own, theirs func([2]uint64) bool) (bad uint64) {
	switch why {
	case wire.StatusOK:
	case wire.StatusInvalid:
		return noteRequester
	default:
		return noteResponder
	}
	if o.spec&noteResponder != 0 && !o.transfers(noteResponder, o.kind, o.read, theirs) {
		return noteResponder
	}
	if o.spec&noteRequester != 0 {
		one := o
		one.modifier = 0
		one.transfers(noteRequester, o.kind, o.write, own)
	}
	if o.spec&noteCompleter != 0 {
		o.transfers(noteCompleter, kindGetResponse+o.kind&1, o.write, own)
	}
	return 0
}

func (f *farPair) notify(o operation, own, theirs func([2]uint64) bool) (bad uint64) {
	class := uint64(o.size & 0xff)
	if o.spec&noteCompleter != 0 && !theirs(o.notification(noteCompleter, o.kind, o.read, class, 0)) {
		return noteCompleter
	}
	if o.spec&noteRequester != 0 {
		own(o.notification(noteRequester, o.kind, o.read, class, 0))
	}
	return 0
}

// lockFar does a lock operation. read is the lock's number, write holds compare and add.
func (f *farPair) lockFar(o operation, own, theirs func([2]uint64) bool) (bad uint64) {
	a := f.askFarPort(wire.Message{Op: wire.OpFarLock, B: o.read, C: o.write}, nil)
	if a.Status != wire.StatusOK {
		return noteResponder
	}
	result := o.read | a.A&1<<24 | a.B<<32
	if o.spec&noteRequester != 0 {
		own(o.notification(noteRequester, o.kind, o.read|o.write>>32<<32, 0, 0))
	}
	if o.spec&noteResponder != 0 && !theirs(o.notification(noteResponder, o.kind, result, 0, 0)) {
		return noteResponder
	}
	if o.spec&noteCompleter != 0 {
		own(o.notification(noteCompleter, kindLockResponse, result, 0, 0))
	}
	return 0
}
