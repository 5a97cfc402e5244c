package memory

import (
	"fmt"
	"net"
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
	slots  chan uint32 // those that are free
	done   <-chan struct{}
	answer [wire.Slots]chan wire.Status
}

// ahead is how many slots one read or write fills at the same time.
const ahead = 8

// busyPause is the pause before an operation that the node could not take is tried again.
const busyPause = time.Millisecond

func newWindow(conn *net.UnixConn, fd int, done <-chan struct{}) (path, error) {
	m, err := shm.MapShared(fd, wire.WindowSize, wire.WindowSize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		return nil, err
	}
	w := &window{conn: conn, shared: m, memory: m.Memory(), done: done, slots: make(chan uint32, wire.Slots)}
	for i := range w.answer {
		w.answer[i] = make(chan wire.Status, 1)
		w.slots <- uint32(i)
	}
	return w, nil
}

// say sends a message to the node.
func say(conn *net.UnixConn, m wire.Message) error {
	b, _ := m.AppendBinary(nil) // it does not fail
	_, err := conn.Write(b)
	return err
}

// ended hands an answer to who waits for it.
func (w *window) ended(m wire.Message) {
	if m.Number < wire.Slots {
		select {
		case w.answer[m.Number] <- m.Status:
		default: // nobody has asked
		}
	}
}

// piece is a part of a read or write that has a slot.
type piece struct {
	slot   uint32
	p      []byte
	off, n int64
}

// ReadAt implements path.
func (w *window) ReadAt(p []byte, off int64) error { return w.move(wire.OpGet, p, off) }

// WriteAt implements path.
func (w *window) WriteAt(p []byte, off int64) error { return w.move(wire.OpPut, p, off) }

// Discard implements path.
func (w *window) Discard(off, n int64) error {
	slot, ok := w.take(true)
	if !ok {
		return shm.ErrCut
	}
	return w.finish(wire.OpZero, piece{slot: slot, off: off, n: n}, w.start(wire.OpZero, piece{slot: slot, off: off, n: n}))
}

// Close implements path. Those who wait for an answer see the end of the lease.
func (w *window) Close() {}

// take takes a free slot, and waits for one if wait is set.
func (w *window) take(wait bool) (slot uint32, ok bool) {
	select {
	case slot = <-w.slots:
		return slot, true
	default:
	}
	if !wait {
		return 0, false
	}
	select {
	case slot = <-w.slots:
		return slot, true
	case <-w.done:
		return 0, false
	}
}

// move reads or writes, up to ahead pieces at the same time. It waits for a slot only while it has
// none, so that two of them never wait for each other.
func (w *window) move(op wire.Op, p []byte, off int64) (err error) {
	var under []piece
	for len(p) > 0 || len(under) > 0 {
		if len(p) > 0 && err == nil && len(under) < ahead {
			if slot, ok := w.take(len(under) == 0); ok {
				n := min(int64(len(p)), wire.SlotSize, wire.PartSize-off%wire.PartSize)
				c := piece{slot, p[:n], off, n}
				if op == wire.OpPut {
					w.at(c).Fill(c.p)
				}
				if err = w.start(op, c); err != nil {
					w.slots <- slot
					continue
				}
				under = append(under, c)
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
		if e := w.finish(op, under[0], nil); err == nil {
			err = e
		}
		under = under[1:]
		if err != nil {
			p = nil
		}
	}
	return err
}

func (w *window) at(c piece) foreign.Memory {
	return w.memory.Part(int(c.slot)*wire.SlotSize, int(c.n))
}

// start has the node begin an operation.
func (w *window) start(op wire.Op, c piece) error {
	if say(w.conn, wire.Message{Op: op, Number: c.slot, A: uint64(c.off), B: uint64(c.n)}) != nil {
		return shm.ErrCut
	}
	return nil
}

// finish waits for an operation, which began with the error given.
func (w *window) finish(op wire.Op, c piece, err error) error {
	for err == nil {
		var s wire.Status
		select {
		case s = <-w.answer[c.slot]:
		case <-w.done: // the slot is not used again
			return shm.ErrCut
		}
		if s == wire.StatusBusy {
			time.Sleep(busyPause)
			err = w.start(op, c)
			continue
		}
		if s == wire.StatusOK && op == wire.OpGet {
			w.at(c).CopyTo(c.p)
		}
		w.slots <- c.slot
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
