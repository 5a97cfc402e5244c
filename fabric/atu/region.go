package atu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/internal/shm"
)

// Region is registered memory.
//
// Concurrency: all methods may be called from many goroutines; Lend and Revoke
// are meant for one owner.
type Region struct {
	atu    *ATU
	base   NLA // of the first byte, without generation
	size   int
	pages  int
	vpid   fabric.VPID
	access Access
	mem    []byte
	dev    Device
	view   []byte // the pages of a page list in a row, or nil
	first  int    // where the data begins in view

	loanMu sync.Mutex // serialises Lend, Revoke and Close
	book   Book       // guarded by loanMu; where a peer sees the region, or nil
	shown  NLA        // guarded by loanMu; the address in book or table
	tabled bool       // guarded by loanMu; the region is in the ATU's table

	state   atomic.Uint64
	drained chan struct{} // made by Close before it sets stateClosing
}

// The state word of a region:
//
//	 63            40 39        24 23  22 21      20           0
//	┌────────────────┬────────────┬──────┬───────┬──────────────┐
//	│ generation  24 │ node    16 │ mode │closing│ busy      21 │
//	└────────────────┴────────────┴──────┴───────┴──────────────┘
//
//	          Register
//	             │
//	             ▼       Lend, LendAll (generation+1)
//	       ┌─ closed ──────────────────────────────▶ one node / all nodes ─┐
//	       │     ▲                                     │      ▲      │     │
//	       │     └───────────── Revoke ────────────────┘      └─Lend─┘     │
//	       └──────────────────────── Close ──▶ closing ◀───────────────────┘
//
// Lend and Revoke happen only while busy is 0.
const (
	stateBusyMask  = 1<<21 - 1
	stateClosing   = 1 << 21
	stateModeMask  = 3 << 22
	stateOneNode   = 1 << 22
	stateAllNodes  = 2 << 22
	stateNodeShift = 24
	stateGenShift  = genShift
)

// nextGeneration returns the generation after g. It is never 0, so a small integer is
// not a valid NLA.
func nextGeneration(g uint32) uint32 {
	if g = (g + 1) & genMask; g == 0 {
		g = 1
	}
	return g
}

// NLA is the current address of the region's first byte.
func (r *Region) NLA() NLA {
	return r.base | NLA(r.state.Load()>>stateGenShift)<<genShift
}

// Len is the size in bytes.
func (r *Region) Len() int { return r.size }

// Bytes is the memory given to Register, or a view of a page list; nil for a device.
func (r *Region) Bytes() []byte { return r.mem }

// Lend opens the region for the node to and returns the address to give to it.
// Every earlier NLA of the region is refused from now on. The error wraps
// fabric.ErrAgain while a transfer runs on the region, or fabric.ErrClosed.
func (r *Region) Lend(to fabric.NodeID) (NLA, error) {
	r.loanMu.Lock()
	defer r.loanMu.Unlock()
	nla, err := r.lendLocked(uint64(to)<<stateNodeShift | stateOneNode)
	if err == nil {
		r.showLocked(to, nla)
		r.enterLocked(nla, Loan{Node: to})
	}
	return nla, err
}

// LendAll is Lend for every node that uses the region's VPID.
func (r *Region) LendAll() (NLA, error) {
	r.loanMu.Lock()
	defer r.loanMu.Unlock()
	nla, err := r.lendLocked(stateAllNodes)
	if err == nil {
		r.enterLocked(nla, Loan{All: true})
	}
	return nla, err
}

var errBusy = fmt.Errorf("atu: lend: transfer running: %w", fabric.ErrAgain)

// +checklocks:r.loanMu
func (r *Region) lendLocked(mode uint64) (NLA, error) {
	if !r.isReachable() {
		return 0, fmt.Errorf("atu: lend: peers reach only memory of Alloc: %w", fabric.ErrInvalid)
	}
	if !r.withdrawLocked() {
		return 0, errBusy
	}
	for {
		s := r.state.Load()
		if s&stateClosing != 0 {
			return 0, fmt.Errorf("atu: lend: %w", fabric.ErrClosed)
		}
		if s&stateBusyMask != 0 {
			return 0, errBusy
		}
		g := nextGeneration(uint32(s >> stateGenShift))
		if r.state.CompareAndSwap(s, uint64(g)<<stateGenShift|mode) {
			return r.base | NLA(g)<<genShift, nil
		}
	}
}

// Revoke closes the region to other nodes. While a transfer runs on the region, it
// changes nothing and returns false: try again later. After true, no other node
// accesses the memory until the next Lend.
func (r *Region) Revoke() bool {
	r.loanMu.Lock()
	defer r.loanMu.Unlock()
	if !r.withdrawLocked() {
		return false
	}
	for {
		s := r.state.Load()
		if s&stateBusyMask != 0 {
			return false
		}
		if r.state.CompareAndSwap(s, s&^uint64(stateModeMask)) {
			return true
		}
	}
}

// Close removes the region from the ATU and waits until its transfers have ended. When
// it returns, the memory belongs to the caller again. A second Close returns
// fabric.ErrClosed, wrapped, at once.
func (r *Region) Close() error {
	t := r.atu
	t.mu.Lock()
	if r.drained != nil {
		t.mu.Unlock()
		return fmt.Errorf("atu: close: %w", fabric.ErrClosed)
	}
	r.drained = make(chan struct{})
	t.unmapLocked(r)
	t.regions--
	t.mu.Unlock()
	for {
		s := r.state.Load()
		if r.state.CompareAndSwap(s, s|stateClosing) {
			r.awaitUnshown()
			if s&stateBusyMask != 0 {
				r.waitIdle()
			}
			if r.view != nil {
				return shm.Scatter(r.view)
			}
			return nil
		}
	}
}

// closeWait is how long Close waits for peers before it takes their links down. A
// transfer lasts milliseconds, unless the peer is stopped or hostile.
const closeWait = time.Second

// awaitUnshown waits until no peer reads the region itself.
func (r *Region) awaitUnshown() {
	r.loanMu.Lock()
	defer r.loanMu.Unlock()
	for begun := time.Now(); !r.withdrawLocked(); time.Sleep(10 * time.Microsecond) {
		if time.Since(begun) > closeWait {
			r.reclaimLocked()
		}
	}
}

// waitIdle waits until no transfer runs.
func (r *Region) waitIdle() {
	late := time.AfterFunc(closeWait, r.reclaimRegion)
	defer late.Stop()
	<-r.drained
}

func (r *Region) reclaimRegion() {
	if books := r.atu.books.Load(); books != nil {
		for _, b := range *books {
			b.Reclaim(r.mem)
		}
	}
}

// acquireFor checks generation and node and makes the region busy, in one step.
func (r *Region) acquireFor(nla NLA, from fabric.NodeID) error {
	c := &r.atu.count
	for {
		s := r.state.Load()
		switch {
		case s&stateClosing != 0:
			c.unmapped.Add(1)
			return ErrUnmapped
		case s>>stateGenShift != uint64(nla>>genShift):
			c.generation.Add(1)
			return ErrGeneration
		case !r.admits(s, from):
			c.node.Add(1)
			return ErrNode
		}
		if r.state.CompareAndSwap(s, s+1) {
			return nil
		}
	}
}

func (r *Region) admits(s uint64, from fabric.NodeID) bool {
	if from == r.atu.self {
		return true
	}
	switch s & stateModeMask {
	case stateOneNode:
		return fabric.NodeID(s>>stateNodeShift) == from
	case stateAllNodes:
		return true
	}
	return false
}

func (r *Region) endTransfer() {
	if s := r.state.Add(^uint64(0)); s&(stateClosing|stateBusyMask) == stateClosing {
		close(r.drained)
	}
}
