package ofi

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
)

// The ring's layout; helper/ring.h has the same.
const (
	ringSlots = 32
	slotSize  = 72 << 10
	ringData  = 8192
	ringSize  = ringData + 2*ringSlots*slotSize
	ringLine  = 128

	txLens = ringWords * ringLine // 4 bytes for each slot: of those to be sent, then of the others
)

// Counters, a cache line each.
const (
	txTold = iota
	txDone
	rxTold
	rxDone
	rxPosted
	sleeps
	rxWaits
	txWaits
	wakes
	ringWords
)

// ring is the memory that the node shares with its helper, which may write anything into
// it at any time. What the node itself counts is kept apart.
type ring struct {
	seg        *shm.Foreign
	mem        foreign.Memory
	words      [ringWords]*atomic.Uint64
	lens       []atomic.Uint32 // of the slots to be sent, then of the others
	wake, bell int             // eventfds: the helper's, the node's

	told  uint64        // the sender's: messages to be sent
	done  atomic.Uint64 // messages taken; the receiver writes it
	size  int           // the receiver's: of the message that is being taken; 0: none is
	taken int           // the receiver's: how much of it was
}

func newRing() (*ring, error) {
	r := &ring{wake: -1, bell: -1}
	var err error
	if r.seg, err = shm.CreateShared("exn-ofi", ringSize); err != nil {
		if r.seg != nil {
			r.seg.Retire()
		}
		return nil, err
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		r.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("ofi: eventfd: %w", err)
	}
	r.mem = r.seg.Memory()
	for i := range r.words {
		r.words[i] = &r.mem.Words(i*ringLine, 1)[0]
	}
	r.lens = r.mem.Words32(txLens, 2*ringSlots)
	return r, nil
}

func (r *ring) close() {
	for _, fd := range []*int{&r.wake, &r.bell} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	r.seg.Retire()
}

// ringBell rings an eventfd. If it is full its owner is awake anyway.
func ringBell(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// rouse wakes the helper if it sleeps.
func (r *ring) rouse() {
	if r.words[sleeps].Load() != 0 && r.words[sleeps].Swap(0) != 0 {
		ringBell(r.wake)
	}
}

// freeSlots is how many slots can be filled.
func (r *ring) freeSlots() (int, error) {
	waiting := r.told - r.words[txDone].Load()
	if waiting > ringSlots {
		return 0, fmt.Errorf("%w: %d messages are being sent", ErrHelper, waiting)
	}
	return ringSlots - int(waiting), nil
}

// send copies what fits of parts into slots, and returns how many bytes that is.
func (r *ring) send(parts [][]byte) (n int, err error) {
	room, err := r.freeSlots()
	if err != nil {
		return 0, err
	}
	fill := 0 // of the slot
	for _, p := range parts {
		for len(p) > 0 && room > 0 {
			slot := int(r.told % ringSlots)
			k := r.mem.Part(ringData+slot*slotSize+fill, slotSize-fill).Fill(p)
			p, n, fill = p[k:], n+k, fill+k
			if fill == slotSize {
				r.tell(slot, fill)
				room, fill = room-1, 0
			}
		}
	}
	if fill > 0 {
		r.tell(int(r.told%ringSlots), fill)
	}
	if n > 0 {
		r.words[txTold].Swap(r.told) // and no Store, here and below: see package shm
		r.rouse()
	}
	return n, nil
}

func (r *ring) tell(slot, n int) {
	r.lens[slot].Store(uint32(n))
	r.told++
}

// armSent has the helper ring when it has sent something.
func (r *ring) armSent() {
	r.words[txWaits].Swap(1)
	if n, err := r.freeSlots(); n > 0 || err != nil {
		ringBell(r.bell)
	}
}

// receive takes the next message, or what fits of it or is left. 0: nothing has come.
func (r *ring) receive(place, more []byte) (int, error) {
	done := r.done.Load()
	slot := int(done % ringSlots)
	if r.size == 0 {
		waiting := r.words[rxTold].Load() - done
		if waiting == 0 {
			return 0, nil
		}
		size := r.lens[ringSlots+slot].Load()
		if waiting > ringSlots || size == 0 || size > slotSize {
			return 0, fmt.Errorf("%w: received %d messages, one of %d bytes", ErrHelper, waiting, size)
		}
		r.size, r.taken = int(size), 0
	}
	m := r.mem.Part(ringData+(ringSlots+slot)*slotSize+r.taken, r.size-r.taken)
	n := m.CopyTo(place)
	n += m.Part(n, m.Len()-n).CopyTo(more)
	if r.taken += n; r.taken == r.size {
		r.size = 0
		r.done.Store(done + 1)
		r.words[rxDone].Swap(done + 1)
		if done+1+ringSlots-r.words[rxPosted].Load() >= ringSlots/4 {
			r.rouse()
		}
	}
	return n, nil
}

// armReceived has the helper ring when a message comes. It returns false if one has come.
func (r *ring) armReceived() bool {
	r.words[rxWaits].Swap(1)
	return r.words[rxTold].Load() == r.done.Load()
}

// hush takes note of a ring.
func (r *ring) hush() {
	var count [8]byte
	_, _ = unix.Read(r.bell, count[:]) // EAGAIN: it was no ring
}
