//go:build exngo

// This file is a part of package runtime in programs that exn-go builds. The functions that it
// calls exnPlain… are those of the same name without that in the Go release.
//
// A goroutine that waits for a message of a direct connection sleeps in its doorbell's pollDesc.
// The scheduler looks at the connection's memory whenever it looks at the network, and has the
// doorbell armed only before a thread blocks there: so a program that is busy is never rung for,
// and one that has just become idle looks at all its connections for a while at once.
//
//	Watch:    the place says exnWaits;  is exnAsleep set? then the caller arms by itself
//	blocking: exnAsleep = 1;  all places that say exnWaits are armed;  barrier;  look at all;  block
//
// Whoever comes later in the order of these atomic operations sees what the other has done.
// Exn-go's schedule_test.go has all orders.

package runtime

import (
	"internal/goarch"
	"internal/runtime/atomic"
	exnsys "internal/runtime/syscall/linux"
	"unsafe"
)

// States of a place, in the low bits of its word; the bits above count its users.
const (
	exnFree  = iota
	exnTaken // its user writes it
	exnWaits // for a message, and nothing is armed
	exnArmed // and the doorbell is armed
	exnShown // the same, and nobody has looked since
	exnFired // its goroutine was told
	exnBusy  // it is being armed
	exnUser  = 1 << 3
)

// exnPlaces is how many goroutines the scheduler looks for; others arm by themselves.
const exnPlaces = 128

// exnTimes is how often a wait is disarmed again when another one ends.
const exnTimes = 2

// What is known of attention words and flags (directsockets/SPEC.md, 2.2).
const (
	exnArmRX     = 1
	exnNumber    = 1 << 8
	exnPeerFlags = 0xfc
	exnFences    = 8
)

// Numbers of system calls.
const (
	exnPpoll      = goarch.IsAmd64*271 + (1-goarch.IsAmd64)*73
	exnMembarrier = goarch.IsAmd64*324 + (1-goarch.IsAmd64)*283
)

// exnAttention is package shm's Attention.
type exnAttention struct {
	busy, word uint32
	shared     *uint32
}

// exnWaiter is package shm's Waiter.
type exnWaiter struct {
	word      *uint64 // status of the slot of the next message
	peer      *uint32 // the peer's attention
	peerFlags *uint32
	own       *exnAttention
	lap       uint32 // of the message
	known     uint32 // flags of the peer's attention
	bell      int32
	expedited bool
	near      bool // the peer is on the same CPU
	place     uint32
	user      uint32
}

type exnPlace struct {
	state  atomic.Uint32
	lap    uint32
	known  uint32
	bell   int32
	word   uintptr
	peer   uintptr
	pd     *pollDesc
	waiter *exnWaiter
	times  uint32 // how often it was armed for this wait
	asked  uint32 // the user of whom the kernel was asked whether the peer has gone
}

var (
	exnTable    [exnPlaces]exnPlace
	exnHigh     atomic.Uint32 // places below have been used
	exnHand     atomic.Uint32 // where the next one to be put out is looked for
	exnScanning atomic.Uint32 // a lock
	exnScans    uint32        // of its holder: how many there were
	exnAsleep   atomic.Uint32 // a thread blocks for the network, or is about to
	exnNear     atomic.Uint32 // the peer of who waited last is on the same CPU
	exnPolls    atomic.Uint32 // since the kernel was asked
	exnSpin     int64         // of who blocks: ns
	exnSkipped  int32         // of who blocks: waits without a look
	exnRest     int64         // of who blocks: until then nobody lingers
)

// exnDescs has who sleeps for a descriptor.
var exnDescs [1 << 16]*pollDesc

func netpollopen(fd uintptr, pd *pollDesc) uintptr {
	if fd < uintptr(len(exnDescs)) {
		exnDescs[fd] = pd
	}
	return exnPlainNetpollopen(fd, pd)
}

// exnWatch has the scheduler look for w's message until exnUnwatch. 0: there is no place;
// 1: it does; 2: it does, but a thread blocks, which w has to arm for.
//
//go:linkname exnWatch internal/syscall.exnWatch
func exnWatch(w *exnWaiter) int32 {
	exnUnwatch(w)
	if w.bell < 0 || int(w.bell) >= len(exnDescs) || exnDescs[w.bell] == nil || !exnTake(w) {
		return 0
	}
	p := &exnTable[w.place]
	p.waiter = w
	p.pd, p.bell = exnDescs[w.bell], w.bell
	p.word, p.peer = uintptr(unsafe.Pointer(w.word)), uintptr(unsafe.Pointer(w.peer))
	p.lap, p.known, p.times = w.lap, w.known, 0
	near := uint32(0)
	if w.near {
		near = 1
	}
	if exnNear.Load() != near {
		exnNear.Store(near)
	}
	p.state.Store(w.user*exnUser | exnWaits)
	if exnAsleep.Load() != 0 {
		return 2
	}
	return 1
}

// exnCrowded reports whether other goroutines wait for the caller's thread.
//
//go:linkname exnCrowded internal/syscall.exnCrowded
func exnCrowded() bool { return !runqempty(getg().m.p.ptr()) }

// exnGo runs f in a goroutine of the runtime's, which isSystemGoroutine knows by the name of the
// function that it begins with.
//
//go:linkname exnGo internal/syscall.exnGo
func exnGo(f func()) { go exnRun(f) }

func exnRun(f func()) { f() }

// exnTake finds a place for w: its last, a free one, or that of who has waited for long.
func exnTake(w *exnWaiter) bool {
	if exnTry(w, w.place, exnFree) {
		return true
	}
	high := exnHigh.Load()
	for i := uint32(0); i < high; i++ {
		if exnTry(w, i, exnFree) {
			return true
		}
	}
	for high < exnPlaces {
		if exnHigh.CompareAndSwap(high, high+1) && exnTry(w, high, exnFree) {
			return true
		}
		high = exnHigh.Load()
	}
	for range 8 {
		if exnTry(w, exnHand.Add(1)%exnPlaces, exnArmed) {
			return true
		}
	}
	return false
}

func exnTry(w *exnWaiter, i, state uint32) bool {
	p := &exnTable[i]
	old := p.state.Load()
	next := (old/exnUser + 1) * exnUser
	if next == 0 { // user 0 is nobody
		next = exnUser
	}
	if i >= exnHigh.Load() || old&(exnUser-1) != state || !p.state.CompareAndSwap(old, next|exnTaken) {
		return false
	}
	w.place, w.user = i, next/exnUser
	return true
}

// exnUnwatch ends exnWatch.
//
//go:linkname exnUnwatch internal/syscall.exnUnwatch
func exnUnwatch(w *exnWaiter) {
	p := &exnTable[w.place]
	for w.user != 0 {
		old := p.state.Load()
		if old/exnUser != w.user || old&(exnUser-1) < exnWaits {
			return // it is another's
		}
		if old&(exnUser-1) == exnBusy {
			procyield(4)
			continue
		}
		if p.state.CompareAndSwap(old, old&^(exnUser-1)|exnTaken) {
			p.waiter = nil
			p.state.Store(w.user*exnUser | exnFree)
			return
		}
	}
}

// exnQuiet returns when nobody looks at memory of which exnUnwatch was called before.
//
//go:linkname exnQuiet internal/syscall.exnQuiet
func exnQuiet() {
	for exnScanning.Load() != 0 {
		osyield()
	}
}

// exnWaiting reports whether a place with this state has somebody who waits.
func exnWaiting(state uint32) bool {
	s := state & (exnUser - 1)
	return s == exnWaits || s == exnArmed || s == exnShown
}

// exnLook tells those whose message has come, and counts who waits still. all: it is not left out
// because another thread looks, and flags of peers are looked at, too, as they are now and then by
// itself. hung: who blocks has armed before, and is told about peers that have gone, too.
func exnLook(list *gList, all, hung bool) (delta int32, waits int) {
	for !exnScanning.CompareAndSwap(0, 1) {
		if !all {
			return 0, 1
		}
		osyield()
	}
	exnScans++
	often := exnScans%64 == 0
	high := exnHigh.Load()
	for i := uint32(0); i < high; i++ {
		p := &exnTable[i]
		old := p.state.Load()
		if !exnWaiting(old) {
			continue
		}
		ready := uint32(atomic.Load64((*uint64)(unsafe.Pointer(p.word)))) == p.lap
		if !ready && (all || often) {
			ready = atomic.Load((*uint32)(unsafe.Pointer(p.peer)))&exnPeerFlags != p.known
		}
		if !ready {
			waits++
			if hung && old&(exnUser-1) == exnShown {
				p.state.CompareAndSwap(old, old&^(exnUser-1)|exnArmed)
			}
			continue
		}
		pd := p.pd
		if p.state.CompareAndSwap(old, old&^(exnUser-1)|exnFired) {
			delta += netpollready(list, pd, 'r')
		}
	}
	if hung || often {
		delta += exnHung(list, high)
	}
	exnScanning.Store(0)
	return delta, waits
}

// exnArmAll arms for all that wait. Of who is busy with its attention nothing is known: it looks
// by itself.
func exnArmAll(list *gList, delta *int32) {
	barrier := false
	high := exnHigh.Load()
	for i := uint32(0); i < high; i++ {
		p := &exnTable[i]
		old := p.state.Load()
		if old&(exnUser-1) != exnWaits || !p.state.CompareAndSwap(old, old&^(exnUser-1)|exnBusy) {
			continue
		}
		w := p.waiter
		if !exnChange(w.own, exnNumber, 0, exnArmRX) {
			pd := p.pd
			p.state.Store(old&^(exnUser-1) | exnFired)
			*delta += netpollready(list, pd, 'r')
			continue
		}
		p.times++
		// The flag is looked at after attention is written, not before.
		barrier = barrier || w.expedited && atomic.Load(w.peerFlags)&exnFences == 0
		p.state.Store(old&^(exnUser-1) | exnShown)
	}
	if barrier {
		const globalExpedited = 1 << 1
		exnsys.Syscall6(exnMembarrier, globalExpedited, 0, 0, 0, 0, 0)
	}
}

// exnChange is Attention.Change, unless somebody else changes it.
func exnChange(a *exnAttention, add, clear, set uint32) bool {
	if !atomic.Cas(&a.busy, 0, 1) {
		return false
	}
	word := (a.word+add)&^clear | set
	atomic.Store(&a.word, word)
	atomic.Store(a.shared, word)
	atomic.Store(&a.busy, 0)
	return true
}

// exnDisarmAll has those be looked for again, and not be rung for, that were armed since they
// began to wait: many of them get messages now. Who has waited for longer stays armed.
func exnDisarmAll() {
	high := exnHigh.Load()
	for i := uint32(0); i < high; i++ {
		p := &exnTable[i]
		old := p.state.Load()
		if old&(exnUser-1) != exnArmed || p.times > exnTimes || !p.state.CompareAndSwap(old, old&^(exnUser-1)|exnBusy) {
			continue
		}
		next := uint32(exnArmed)
		if exnChange(p.waiter.own, 0, exnArmRX, 0) {
			next = exnWaits
		}
		p.state.Store(old&^(exnUser-1) | next)
	}
}

type exnPollFd struct {
	fd              int32
	events, revents int16
}

// exnHung tells those whose peer has gone: the kernel says so only once, perhaps before the wait,
// so it is asked once for each wait.
func exnHung(list *gList, high uint32) (delta int32) {
	var fds [exnPlaces]exnPollFd
	var at [exnPlaces]uint8
	n := 0
	for i := uint32(0); i < high; i++ {
		p := &exnTable[i]
		if state := p.state.Load(); exnWaiting(state) && p.asked != state/exnUser {
			const hungUp = 0x2000     // POLLRDHUP
			p.asked = state / exnUser // its user is another one if somebody else takes the place now
			fds[n] = exnPollFd{fd: p.bell, events: hungUp}
			at[n] = uint8(i)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	var now [2]int64
	got, _, errno := exnsys.Syscall6(exnPpoll, uintptr(noescape(unsafe.Pointer(&fds))), uintptr(n), uintptr(noescape(unsafe.Pointer(&now))), 0, 0, 0)
	if errno == 0 && got == 0 {
		return 0
	}
	for i := range n {
		p := &exnTable[at[i]]
		if errno != 0 {
			p.asked = 0
		}
		if fds[i].revents == 0 {
			continue
		}
		old := p.state.Load()
		if exnWaiting(old) && p.bell == fds[i].fd && p.state.CompareAndSwap(old, old&^(exnUser-1)|exnFired) {
			delta += netpollready(list, p.pd, 'r')
		}
	}
	return delta
}
