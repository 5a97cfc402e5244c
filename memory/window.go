package memory

import (
	"fmt"
	"math"
	"math/bits"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	_ "exnet/internal/linux"
	"exnet/internal/shm"
	"exnet/memory/wire"
)

// window is the way to memory on another host: slots that the node fills and empties.
//
// Concurrency: all methods may be called from many goroutines.
type window struct {
	conn   *net.UnixConn
	shared *shm.Foreign
	memory foreign.Memory
	span   int // slots that one operation may have, in a row
	done   <-chan struct{}
	answer [wire.Slots]chan wire.Status // by an operation's first slot

	mu sync.Mutex
	// free: slots, a bit each.
	free  uint64        // +checklocks:mu
	freed chan struct{} // told when slots become free
}

// ahead is how many slots one read or write fills at the same time.
const ahead = 8

// most is how many slots an operation has at most: each wakes the node and this program once, and
// copies what has come only when all of it has.
const most = 4

// busyPause is the pause before an operation that the node could not take is tried again.
const busyPause = time.Millisecond

// newWindow maps a window. span is how many slots one operation may have, as the node says.
func newWindow(conn *net.UnixConn, fd int, span uint64, done <-chan struct{}) (path, error) {
	m, err := shm.MapShared(fd, wire.WindowSize, wire.WindowSize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		return nil, err
	}
	w := &window{
		conn: conn, shared: m, memory: m.Memory(), done: done, span: int(max(1, min(span, most))),
		free: math.MaxUint64, freed: make(chan struct{}, 1),
	}
	for i := range w.answer {
		w.answer[i] = make(chan wire.Status, 1)
	}
	return w, nil
}

// sendMessage sends a message to the node.
func sendMessage(conn *net.UnixConn, m wire.Message) error {
	b, _ := m.AppendBinary(nil) // it does not fail
	_, err := conn.Write(b)
	return err
}

// answerArrived hands an answer to who waits for it.
func (w *window) answerArrived(m wire.Message) {
	if m.Number < wire.Slots {
		select {
		case w.answer[m.Number] <- m.Status:
		default: // nobody has asked
		}
	}
}

// piece is a part of a read or write that has slots.
type piece struct {
	slot   uint32 // the first
	slots  int
	p      []byte
	off, n int64
}

// ReadAt implements path.
func (w *window) ReadAt(p []byte, off int64) error { return w.moveBytes(wire.OpGet, p, off) }

// WriteAt implements path.
func (w *window) WriteAt(p []byte, off int64) error { return w.moveBytes(wire.OpPut, p, off) }

// Discard implements path.
func (w *window) Discard(off, n int64) error {
	slot, slots := w.takeSlots(1, true)
	if slots == 0 {
		return shm.ErrCut
	}
	c := piece{slot: slot, slots: slots, off: off, n: n}
	return w.finishOp(wire.OpZero, c, w.beginOp(wire.OpZero, c))
}

// Close implements path. Those who wait for an answer see the end of the lease.
func (w *window) Close() {}

// takeSlots takes up to n free slots in a row, those first that were used before, which are in
// the CPU's caches. If none is free it waits, if it is to; slots 0: it did not, or the lease has
// ended.
func (w *window) takeSlots(n int, wait bool) (slot uint32, slots int) {
	for {
		w.mu.Lock()
		slot, slots = findBits(w.free, n)
		w.free &^= (1<<slots - 1) << slot
		left := w.free != 0
		w.mu.Unlock()
		if slots > 0 && left {
			w.wakeWaiter()
		}
		if slots > 0 {
			return slot, slots
		}
		if !wait {
			return 0, 0
		}
		select {
		case <-w.freed:
		case <-w.done:
			return 0, 0
		}
	}
}

// findBits finds up to n bits in a row: the first that are as many as there are.
func findBits(free uint64, n int) (first uint32, found int) {
	for ; n > 0; n-- {
		begin := free // where n in a row begin
		for i := range n {
			begin &= free >> i
		}
		if begin != 0 {
			return uint32(bits.TrailingZeros64(begin)), n
		}
	}
	return 0, 0
}

// giveSlots gives slots back.
func (w *window) giveSlots(c piece) {
	w.mu.Lock()
	w.free |= (1<<c.slots - 1) << c.slot
	w.mu.Unlock()
	w.wakeWaiter()
}

// wakeWaiter wakes one of those that wait for a slot, who wakes the next.
func (w *window) wakeWaiter() {
	select {
	case w.freed <- struct{}{}:
	default: // one is woken already
	}
}

// moveBytes reads or writes, several pieces at the same time. It waits for a slot only while it
// has none, so that two of them never wait for each other.
func (w *window) moveBytes(op wire.Op, p []byte, off int64) (err error) {
	var under []piece
	room := ahead // slots
	for len(p) > 0 || len(under) > 0 {
		if len(p) > 0 && err == nil && room > 0 {
			n := min(int64(len(p)), int64(min(room, w.span))*wire.SlotSize, wire.PartSize-off%wire.PartSize)
			if slot, slots := w.takeSlots(int((n+wire.SlotSize-1)/wire.SlotSize), len(under) == 0); slots > 0 {
				n = min(n, int64(slots)*wire.SlotSize)
				c := piece{slot, slots, p[:n], off, n}
				if op == wire.OpPut {
					w.slotMemory(c).Fill(c.p)
				}
				if err = w.beginOp(op, c); err != nil {
					w.giveSlots(c)
					continue
				}
				under = append(under, c)
				room -= slots
				p, off = p[n:], off+n
				continue
			}
			if len(under) == 0 {
				return shm.ErrCut
			}
		}
		if len(under) == 0 {
			return err
		}
		if e := w.finishOp(op, under[0], nil); err == nil {
			err = e
		}
		room += under[0].slots
		under = under[1:]
		if err != nil {
			p = nil
		}
	}
	return err
}

func (w *window) slotMemory(c piece) foreign.Memory {
	return w.memory.Part(int(c.slot)*wire.SlotSize, int(c.n))
}

// beginOp has the node begin an operation.
func (w *window) beginOp(op wire.Op, c piece) error {
	if sendMessage(w.conn, wire.Message{Op: op, Number: c.slot, A: uint64(c.off), B: uint64(c.n)}) != nil {
		return shm.ErrCut
	}
	return nil
}

// finishOp waits for an operation, which began with the error given.
func (w *window) finishOp(op wire.Op, c piece, err error) error {
	for err == nil {
		var s wire.Status
		select {
		case s = <-w.answer[c.slot]:
		case <-w.done: // the slots are not used again
			return shm.ErrCut
		}
		if s == wire.StatusBusy {
			time.Sleep(busyPause)
			err = w.beginOp(op, c)
			continue
		}
		if s == wire.StatusOK && op == wire.OpGet {
			w.slotMemory(c).CopyTo(c.p)
		}
		w.giveSlots(c)
		return failure(s)
	}
	return err
}

// failure is the error of an operation.
func failure(s wire.Status) error {
	switch s {
	case wire.StatusOK:
		return nil
	case wire.StatusInvalid:
		return fmt.Errorf("%w: the node refuses an offset", ErrRange)
	}
	return ending(s)
}
