package txloop

// queue says whether a device may have a packet, by how many its host has sent (Senders), without
// a system call: of the 31 reads that a connection with one request took, 21 found nothing.
//
// A packet is counted before it can be read, and may be dropped in between. So it is looked for
// several times, and then taken for dropped. If it comes after all, the next packet brings it
// along, or poll(2), which looks before each wait, or a read without cause, from time to time.
type queue struct {
	sent  uint64 // as last asked
	taken uint64 // of these, read or dropped
	vain  int    // reads that found nothing though one was counted, since all counted ones were read
	sure  bool   // poll(2) says, or may say, that there is one
}

// maxVain is how often a packet is looked for. What holds a CPU up between counting and queueing
// is the host of a virtual machine.
const maxVain = 16

// mayRead reports whether to read from the device.
func (p *port) mayRead() bool {
	q := &p.queue
	if p.Senders == nil || q.sure || q.sent != q.taken {
		return true // without asking: the counters are in the caches of the CPUs that send
	}
	if q.sent = p.Senders.Sent(); q.sent == q.taken {
		q.vain = 0
		return false
	}
	return true
}

// noteRead says that a packet was read: one of those counted, or, if all of these are read, one
// that was taken for dropped, or that nobody counts (XDP). After such a one, there may be more.
func (p *port) noteRead() {
	q := &p.queue
	if q.taken == q.sent && p.Senders != nil {
		q.sent = p.Senders.Sent() // poll(2) said that it was there, and nobody has asked
	}
	if q.taken != q.sent {
		q.taken++
		q.sure = false
	}
}

// noteNothing says that no packet was there, though one may have been. It reports whether what was
// counted is now taken for dropped.
func (q *queue) noteNothing() (dropped bool) {
	q.sure = false
	if q.vain++; q.vain >= maxVain {
		dropped = q.taken != q.sent
		q.taken, q.vain = q.sent, 0
	}
	return dropped
}

// hasPending reports whether a packet is counted that was not read.
func (l *Loop) hasPending() bool {
	for i := range l.ports {
		if p := &l.ports[i]; p.Senders != nil && !p.held && p.mayRead() {
			return true
		}
	}
	return false
}
