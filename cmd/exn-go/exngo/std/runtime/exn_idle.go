//go:build exngo

// This file is a part of package runtime in programs that exn-go builds: when a thread looks for
// messages, lingers for them, and sleeps.

package runtime

// netpoll is the release's, and looks at the memory of connections, too.
func netpoll(delay int64) (gList, int32) {
	var list gList
	if delay != 0 {
		delta := exnIdle(&list, delay)
		return list, delta
	}
	if exnHigh.Load() == 0 {
		return exnPlainNetpoll(0)
	}
	delta, _ := exnLook(&list, false, false)
	if !list.empty() && exnPolls.Add(1)%8 != 0 {
		return list, delta
	}
	return list, delta + exnAlso(&list, 0)
}

// exnAlso asks the kernel, and adds what it says to list.
func exnAlso(list *gList, delay int64) (delta int32) {
	more, delta := exnPlainNetpoll(delay)
	if list.empty() {
		*list = more
		return delta
	}
	for !more.empty() {
		list.push(more.pop())
	}
	return delta
}

// exnIdle is netpoll that blocks. One thread at a time calls it.
func exnIdle(list *gList, delay int64) (delta int32) {
	if exnHigh.Load() != 0 {
		if delta = exnLinger(list, delay); !list.empty() {
			return delta
		}
		if netpollWakeSig.Load() != 0 {
			return exnAlso(list, delay)
		}
	}
	exnAsleep.Store(1) // whoever is the first to wait finds it, or is found
	if exnHigh.Load() == 0 {
		delta += exnAlso(list, delay)
		exnAsleep.Store(0)
		return delta
	}
	exnArmAll(list, &delta)
	more, _ := exnLook(list, true, true)
	if delta += more; !list.empty() {
		exnAsleep.Store(0)
		return delta
	}
	delta += exnAlso(list, delay)
	exnAsleep.Store(0)
	exnDisarmAll()
	more, _ = exnLook(list, false, false)
	return delta + more
}

const (
	exnSpinMax = 50e3 // ns
	exnSpinMin = 2e3
	exnSpinTry = 20e3 // now and then, where it did not pay
	exnKernel  = 10e3 // how often the kernel is asked meanwhile
	exnProbe   = 32
	exnCrowd   = 4 // readers, one of whose messages comes soon
	exnYields  = 4
	exnSlow    = 100e3 // between two looks: the CPU was another's
	exnResting = 100   // times as long nobody lingers: who spins is put off, and who sleeps is not
	exnRestMax = 2e9
)

// exnLinger looks at all connections for a while, as long as that pays.
func exnLinger(list *gList, delay int64) (delta int32) {
	limit := exnSpin
	if limit < exnSpinMin {
		if exnSkipped++; exnSkipped < exnProbe {
			return 0
		}
		exnSkipped = 0
		limit = exnSpinTry
	}
	if delay > 0 {
		limit = min(limit, delay)
	}
	start := nanotime()
	if start < exnRest {
		return 0
	}
	if exnNear.Load() != 0 {
		return exnYield(list, start)
	}
	asked, last := start, start
	crowd := 1
	if busy := gomaxprocs - sched.npidle.Load(); busy*2 >= numCPUStartup {
		crowd = exnCrowd // other threads of the program have work, and so have its peers' perhaps
	}
	for {
		more, waits := exnLook(list, false, false)
		delta += more
		now := nanotime()
		slow := exnOthers(last, now) // also if a message has come meanwhile
		last = now
		switch {
		case !list.empty():
			exnSpin = min(exnSpinMax, exnSpin*2+exnSpinTry)
			return delta
		case slow, waits < crowd, netpollWakeSig.Load() != 0:
			return delta
		case now-start >= limit:
			exnSpin /= 2
			return delta
		case now-asked >= exnKernel:
			asked = now
			if delta += exnAlso(list, 0); !list.empty() {
				return delta
			}
		}
		procyield(10)
	}
}

// exnOthers reports whether others had the CPU between two looks, and has nobody linger for a
// while then.
func exnOthers(last, now int64) bool {
	took := now - last
	if took <= exnSlow {
		return false
	}
	exnRest = now + min(exnResting*took, exnRestMax)
	return true
}

// exnYield is exnLinger when the peer is on the same CPU.
func exnYield(list *gList, now int64) (delta int32) {
	for range exnYields {
		osyield()
		last := now
		now = nanotime()
		slow := exnOthers(last, now) // also if a message has come meanwhile
		delta, _ := exnLook(list, false, false)
		if !list.empty() {
			exnSpin = min(exnSpinMax, exnSpin*2+exnSpinTry)
			return delta
		}
		if slow {
			break
		}
	}
	exnSpin /= 2
	return 0
}
