package udp

import (
	"time"

	"exnet/directsockets/datagram"
)

// firstWaiting returns a flow whose first record waits for datagrams by the kernel.
func (in *inbound) firstWaiting() *inflow {
	for _, f := range in.active {
		if f.early != 0 && f.rx.Ready() && !f.rx.Due() {
			return f
		}
	}
	return nil
}

// isLost reports whether what the first record of f waits for will not come: the socket has
// nothing (readable false, after now), or as many have come from it since as it has room for,
// and the kernel has dropped as many as are missing, or has had much time to give them to the
// socket: with fewer drops ksoftirqd may have one of them.
func (in *inbound) isLost(f *inflow, missing uint64, now int64, readable bool) bool {
	since := time.Duration(now - f.early)
	if since < datagram.SoftirqTime || readable && in.byKernel-f.earlyAt <= in.s.currentOptions().queue {
		return false
	}
	return uint64(in.uncountedDrops()) >= missing || since >= lateTime
}

// uncountedDrops returns how many datagrams the socket has dropped that no flow has counted as
// lost.
func (in *inbound) uncountedDrops() (n uint32) {
	_ = in.s.cfg.Raw.Control(func(fd uintptr) { n = kernelDrops(int(fd)) })
	return n - in.gone
}

// giveUp takes what the first record of f waits for for lost.
func (in *inbound) giveUp(f *inflow) {
	missing, n := f.rx.GiveUp(), uint64(in.uncountedDrops())
	if len(in.flows) > 1 { // else that flow has lost them all, or nobody's has
		n = min(n, missing)
	}
	in.gone += uint32(n)
}
