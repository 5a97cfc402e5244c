package atu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/shm"
)

// Access says what a region permits, or what an access does, as bits.
type Access uint8

// The bits of Access.
const (
	Read  Access = 1 << iota // the memory may be read: source of a GET or PUT
	Write                    // the memory may be written: sink of a GET or PUT
)

// Device is a device that the DMA engine writes into: a PCIe BAR of an accelerator
// on hardware, a TUN file here. WriteAt borrows p until it returns; the sender may
// change p meanwhile. It is called without any lock, and from several goroutines when
// several transfers run.
type Device interface {
	WriteAt(p foreign.Memory, off int64) (int, error)
}

// ATU is the address translation unit of one NIC.
type ATU struct {
	self  fabric.NodeID
	gats  [GATs]atomic.Pointer[gat]
	count counters

	mu sync.Mutex // guards registration; taken last, no call out under it
	// +checklocks:mu
	free [][]extent // free pages of the GATs opened so far
	// +checklocks:mu
	regions uint64
	// +checklocks:mu
	nextGen uint32 // first generation of the next region

	memory memory
	table  Table                                  // set by Share if peers translate addresses themselves, or nil
	books  atomic.Pointer[map[fabric.NodeID]Book] // a map is not changed
}

// New returns the ATU of the NIC with the node ID self. Its generations begin anywhere: an NLA of
// the node that had this ID before is not one of its own.
func New(self fabric.NodeID) *ATU {
	t := &ATU{self: self}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextGen = rand.Uint32() & genMask
	return t
}

// Register makes mem accessible to the RMA unit for vpid, with the permissions
// a. The ATU borrows mem until the region's Close returns. The region is closed
// to other nodes until Lend.
func (t *ATU) Register(vpid fabric.VPID, mem []byte, a Access) (*Region, error) {
	return t.registerRegion(&Region{atu: t, vpid: vpid, mem: mem, size: len(mem), access: a})
}

// RegisterPages makes a page list accessible as one range of addresses (thesis 3.2.5, 6.4.3): pages
// of PageSize bytes, each at a page boundary of memory of Alloc. The data begins first bytes into
// the first page and has n bytes, which end in the last one. The region maps the pages once more,
// in a row; Bytes lends that view until Close. Peers that translate addresses themselves (Share)
// cannot use such a region.
func (t *ATU) RegisterPages(vpid fabric.VPID, pages [][]byte, first, n int, a Access) (*Region, error) {
	if first < 0 || first >= PageSize || n < 1 || (first+n+PageSize-1)/PageSize != len(pages) {
		return nil, fmt.Errorf("atu: register %d bytes at offset %d of %d pages: %w", n, first, len(pages), fabric.ErrInvalid)
	}
	arena, err := t.Arena()
	if err != nil {
		return nil, err
	}
	view, err := arena.Gather(pages)
	if err != nil {
		return nil, fmt.Errorf("atu: register a page list: %w: %w", fabric.ErrInvalid, err)
	}
	r, err := t.registerRegion(&Region{atu: t, vpid: vpid, mem: view[first : first+n : first+n], size: n, access: a, view: view, first: first})
	if err != nil {
		return nil, errors.Join(err, shm.Scatter(view))
	}
	return r, nil
}

// RegisterDevice makes size bytes of a device accessible. A device can only be
// written: a must be Write.
func (t *ATU) RegisterDevice(vpid fabric.VPID, d Device, size int, a Access) (*Region, error) {
	if d == nil || a != Write {
		return nil, fmt.Errorf("atu: register device: a device can only be written: %w", fabric.ErrInvalid)
	}
	return t.registerRegion(&Region{atu: t, vpid: vpid, dev: d, size: size, access: a})
}

func (t *ATU) registerRegion(r *Region) (*Region, error) {
	switch {
	case !r.vpid.Valid():
		return nil, fmt.Errorf("atu: register: VPID %d: %w", r.vpid, fabric.ErrInvalid)
	case r.access == 0 || r.access&^(Read|Write) != 0:
		return nil, fmt.Errorf("atu: register: access %#x: %w", uint8(r.access), fabric.ErrInvalid)
	case r.size < 1 || r.size > MaxRegion:
		return nil, fmt.Errorf("atu: register %d bytes: use 1 to %d: %w", r.size, MaxRegion, fabric.ErrInvalid)
	}
	first := t.firstOffset(r)
	r.pages = (first + r.size + PageSize - 1) / PageSize
	if r.pages > PagesPerGAT {
		return nil, fmt.Errorf("atu: register %d bytes at offset %d of a page: %w", r.size, first, fabric.ErrInvalid)
	}
	from, to := 0, GATs
	if t.table != nil {
		from = t.table.GAT(r.vpid)
		to = from + 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	gat, page, ok := t.allocLocked(from, to, r.pages)
	if !ok {
		return nil, fmt.Errorf("atu: register: no address space for %d pages left: %w", r.pages, fabric.ErrAgain)
	}
	r.base = makeNLA(gat, page) + NLA(first)
	t.nextGen = nextGeneration(t.nextGen)
	r.state.Store(uint64(t.nextGen) << stateGenShift)
	t.mapLocked(r)
	t.regions++
	return r, nil
}

// Window is an access that Translate granted: n bytes of memory or of a
// device. The region stays busy until Release, which must be called once.
type Window struct {
	region *Region
	mem    []byte // nil for a device
	off    int64  // in the region
}

// Bytes lends the memory until Release; nil if the window is on a device.
func (w *Window) Bytes() []byte { return w.mem }

// WriteAt writes p into the window at off, by a copy or by the device's WriteAt.
// It borrows p until it returns. The bytes must be within the window.
func (w *Window) WriteAt(p foreign.Memory, off int) error {
	if w.region.dev == nil {
		p.CopyTo(w.mem[off:])
		return nil
	}
	n, err := w.region.dev.WriteAt(p, w.off+int64(off))
	if err != nil || n != p.Len() {
		return fabric.ErrDevice
	}
	return nil
}

// Release ends the access.
func (w *Window) Release() { w.region.endTransfer() }

// Translate grants the node from an access of n bytes at nla with the rights of vpid,
// or refuses it with one of the errors of this package, which all wrap
// fabric.ErrProtection. The caller must release the window. It does not allocate.
func (t *ATU) Translate(nla NLA, n int, vpid fabric.VPID, from fabric.NodeID, access Access) (Window, error) {
	r := t.regionAt(nla)
	if r == nil {
		t.count.unmapped.Add(1)
		return Window{}, ErrUnmapped
	}
	off := int(nla&addrMask - r.base)
	switch {
	case off < 0 || n < 1 || n > r.size-off:
		t.count.bounds.Add(1)
		return Window{}, ErrBounds
	case vpid != r.vpid:
		t.count.vpid.Add(1)
		return Window{}, ErrVPID
	case access&^r.access != 0:
		t.count.access.Add(1)
		return Window{}, ErrAccess
	}
	if err := r.acquireFor(nla, from); err != nil {
		return Window{}, err
	}
	w := Window{region: r, off: int64(off)}
	if r.dev == nil {
		w.mem = r.mem[off : off+n : off+n]
	}
	return w, nil
}
