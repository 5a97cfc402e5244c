package ports

import (
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/link/attach/wire"
	"exnet/foreign"
	"exnet/internal/shm"
)

// flow is the node's end of a flow that serves a port of another host: SPEC.md 2.
//
// Concurrency: it belongs to one goroutine, except for close.
type flow struct {
	memory      *shm.Foreign
	slots, size int
	pos         uint64 // slots written or read here
}

// mapFlow maps a flow of a unit. It borrows fd.
func mapFlow(u wire.Unit, fd int) (flow, error) {
	n, size := wire.Slots(u)
	whole := wire.FlowHeader + n*size
	m, err := shm.MapShared(fd, whole, whole, unix.F_SEAL_SHRINK, true)
	return flow{memory: m, slots: n, size: size}, err
}

func (f *flow) slot() foreign.Memory {
	return f.memory.Memory().Part(wire.FlowHeader+int(f.pos&uint64(f.slots-1))*f.size, f.size)
}

// phase is the phase bit of the slot at pos: 1 in the first lap.
func (f *flow) phase() uint64 {
	if f.pos&uint64(f.slots) == 0 {
		return wire.Phase
	}
	return 0
}

// writer is the end of a flow to a port here.
type writer struct {
	flow
	bell int // nonblocking: a port that never reads it holds up nobody
}

// newWriter takes bell. The flow continues where its last writer was.
func newWriter(u wire.Unit, fd, bell int) (*writer, error) {
	f, err := mapFlow(u, fd)
	if err != nil {
		closeAll(bell)
		return nil, err
	}
	f.pos = f.memory.Memory().Words(wire.FlowTail, 1)[0].Load()
	w := &writer{f, bell}
	runtime.AddCleanup(w, func(bell int) { closeAll(bell) }, bell)
	return w, nil
}

// hasRoom returns whether there is a free slot. It returns false if the reader's position is
// impossible.
func (w *writer) hasRoom() bool {
	return w.pos-w.memory.Memory().Words(wire.FlowHead, 1)[0].Load() < uint64(w.slots)
}

// write fills a slot, which must be free, and wakes the reader if it sleeps.
func (w *writer) write(word uint64, payload []byte) {
	s := w.slot()
	s.Part(8, w.size-8).Fill(payload)
	shm.Publish()
	s.Words(0, 1)[0].Store(word&^wire.Phase | w.phase())
	w.pos++
	m := w.memory.Memory()
	m.Words(wire.FlowTail, 1)[0].Swap(w.pos) // and no Store: see package shm
	if armed := &m.Words32(wire.FlowArmed, 1)[0]; armed.Load() != 0 && armed.Swap(0) != 0 {
		_, _ = unix.Write(w.bell, []byte{0}) // a full pipe wakes the reader anyway; without a reader there is nothing to wake
		runtime.KeepAlive(w)
	}
}

// ownerOps is the word that counts operations on memory that its owner may take back.
func (w *writer) ownerOps(n uint64) { w.memory.Memory().Words(wire.FlowBusy, 1)[0].Add(n) }

// readerOps is the word that counts the reader's operations that run on its memory.
func (w *writer) readerOps(n uint64) { w.memory.Memory().Words(wire.FlowOwn, 1)[0].Add(n) }

// reader is the end of a flow from a port here.
type reader struct {
	flow
	fd   int      // the flow; the port gets it
	pipe int      // the bell, for who waits with others
	bell *os.File // or for waitForSlot
	ring int      // the bell's writing end; the port gets it
}

// newReader makes a flow.
func newReader(u wire.Unit) (_ *reader, err error) {
	r := &reader{fd: -1, pipe: -1, ring: -1}
	n, size := wire.Slots(u)
	if r.fd, err = sealedMemory("exnet-flow", wire.FlowHeader+n*size); err != nil {
		return nil, err
	}
	if r.flow, err = mapFlow(u, r.fd); err != nil {
		closeAll(r.fd)
		return nil, err
	}
	var pipe [2]int
	if err = unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		closeAll(r.fd)
		return nil, err
	}
	r.pipe, r.ring = pipe[0], pipe[1]
	return r, nil
}

// mayWait is called before waitForSlot.
func (r *reader) mayWait() { r.bell, r.pipe = os.NewFile(uintptr(r.pipe), "bell"), -1 }

// armBell has the writer ring the bell with the next slot, or with false not any longer.
func (r *reader) armBell(on bool) {
	v := uint32(0)
	if on {
		v = 1
	}
	r.memory.Memory().Words32(wire.FlowArmed, 1)[0].Swap(v) // and no Store: see package shm
}

// hasSlot returns whether there is a slot.
func (r *reader) hasSlot() bool { return r.slot().Words(0, 1)[0].Load()&wire.Phase == r.phase() }

// copyOldest copies the oldest slot to b, except for its status word. It returns false if there
// is none.
func (r *reader) copyOldest(b []byte) (word uint64, ok bool) {
	s := r.slot()
	word = s.Words(0, 1)[0].Load()
	shm.Observe()
	if word&wire.Phase != r.phase() {
		return 0, false
	}
	s.Part(8, r.size-8).CopyTo(b)
	return word &^ wire.Phase, true
}

// releaseOldest returns the oldest slot to the writer.
func (r *reader) releaseOldest() {
	r.pos++
	shm.Publish()
	r.memory.Memory().Words(wire.FlowHead, 1)[0].Store(r.pos)
}

// waitForSlot waits until there is a slot. It returns false after close.
func (r *reader) waitForSlot() bool {
	b := make([]byte, r.size)
	armed := &r.memory.Memory().Words32(wire.FlowArmed, 1)[0]
	for {
		armed.Swap(1) // and no Store: see package shm
		if _, ok := r.copyOldest(b); ok {
			armed.Store(0)
			return true
		}
		if _, err := r.bell.Read(b); errors.Is(err, os.ErrClosed) {
			return false
		} else if err != nil {
			return r.drainSlot(b) // the writers have closed the bell
		}
	}
}

// drainSlot returns whether there is still a slot after the last writer has gone.
func (r *reader) drainSlot(b []byte) bool {
	_, ok := r.copyOldest(b)
	return ok
}

// close ends wait. The slots in the flow can still be read.
func (r *reader) close() {
	if r.bell != nil {
		_ = r.bell.Close()
	}
	closeAll(r.fd, r.pipe, r.ring)
	r.fd, r.pipe, r.ring = -1, -1, -1
}

// How long a writer pauses before it looks for room in a flow again: a reader does not report
// room.
const (
	roomFirst = 20 * time.Microsecond
	roomLast  = 2 * time.Millisecond
)
