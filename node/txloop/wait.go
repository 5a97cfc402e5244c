package txloop

import (
	"time"

	"exnet/fabric/link"

	"golang.org/x/sys/unix"
)

func (l *Loop) nap() {
	l.lockThread()
	l.raisePriority()
	l.place.roam(l.links)
	l.stats.Naps.Add(1)
	for _, s := range l.links {
		s.Doze()
	}
	rawNap(l.cfg.Nap)
	l.threadCPU = -1
}

// waitForWork waits until a device has a packet, a link has something to do or Wake is
// called. Held devices are left out, and looked at again after a wake.
func (l *Loop) waitForWork() error {
	l.stats.Waits.Add(1)
	l.threadCPU = -1
	l.raisePriority()
	if l.round >= lazy || len(l.links) > 0 {
		l.rest.removeAll()
	}
	if l.round++; l.round == monitored {
		wakeMonitor()
		l.unbindHome()
	}
	l.waits.Store(true)
	defer l.waits.Store(false)
	l.gatherPollFds()
	limit := link.Forever
	for _, s := range l.links {
		switch d := s.Arm(); {
		case d == 0:
			return nil
		case d > 0 && (limit < 0 || d < limit):
			limit = d
		}
	}
	if l.woken.Load() {
		return nil
	}
	if limit >= 0 && limit < linger {
		l.lockThread() // for a short wait to be short
	}
	begun := time.Now()
	forever := limit < 0
	if forever {
		limit = linger
	}
	switch {
	case rawPoll(l.poll, limit):
		l.spin.noteWaited(time.Since(begun))
	case forever:
		l.stats.Rests.Add(1)
		l.unlockThread()
		l.idleDevices()
		l.round = 0
		l.bindToHome()
		l.rest.removeAll()
		known, err := l.rest.waitReadable(l.poll)
		l.home.noteRested()
		if !known {
			l.suspectAll()
			return err
		}
	}
	l.scatterResults()
	return nil
}

// idleDevices calls Port.Idle of each device.
func (l *Loop) idleDevices() {
	for i := range l.ports {
		if f := l.ports[i].Idle; f != nil {
			f()
		}
	}
}

// suspectAll has all devices and links looked at, when something has ended a rest. To ask which it
// was would take as long. What has rung the bell of a link finds the next poll(2).
func (l *Loop) suspectAll() {
	for i := range l.ports {
		l.ports[i].empty = false
	}
	for i := range l.links {
		l.links[i].rung = false
	}
}

// pollWork is wait with a timeout of 0.
func (l *Loop) pollWork() {
	wakeMonitor()
	l.unbindHome()
	for i := range l.ports {
		l.ports[i].queue.sure = true
	}
	if len(l.links) > 0 {
		l.gatherPollFds()
		rawPoll(l.poll, 0)
		l.scatterResults()
	}
}

// gatherPollFds records what to wait for.
func (l *Loop) gatherPollFds() {
	l.poll = append(l.poll[:0], unix.PollFd{Fd: int32(l.event), Events: unix.POLLIN})
	for i := range l.ports {
		fd := int32(l.ports[i].Device.Fd())
		if l.ports[i].held {
			fd = -1 // poll(2) ignores it
		}
		l.poll = append(l.poll, unix.PollFd{Fd: fd, Events: unix.POLLIN})
	}
	for _, s := range l.links {
		l.poll = append(l.poll, unix.PollFd{Fd: int32(s.Fd()), Events: unix.POLLIN})
	}
}

// scatterResults passes the results of poll(2) to devices and links.
func (l *Loop) scatterResults() {
	if l.poll[0].Revents != 0 {
		var count [8]byte
		unix.Read(l.event, count[:]) // reset; it cannot fail, the counter is not 0
	}
	for i := range l.ports {
		ready := l.poll[1+i].Revents != 0
		l.ports[i].empty = !l.ports[i].held && !ready
		l.ports[i].queue.sure = ready
	}
	for i := range l.links {
		l.links[i].rung = l.poll[1+len(l.ports)+i].Revents != 0
	}
}
