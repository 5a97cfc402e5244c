package credit

import "container/heap"

// event is something that happens at a time, in picoseconds. Events of a time happen in the order
// in which they were made.
type event struct {
	at, seq int64
	do      func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// simulation is the state of a run.
type simulation struct {
	c      Config
	r      Result
	now    int64
	made   int64
	queue  events
	credit [VCs]int // that the sender has
	freed  [VCs]int // that the receiver has not sent back
	turn   VC       // whose packets go next
	busy   bool     // the sender's first stage

	// Stages are free again at these times.
	encap, link, decap, queueIn, nopEncap, nopLink, nopDecap int64

	changed           int64 // when a credit last came or went
	until             int64 // the same, while there were packets to send
	held              int64 // sum of credits * time until then
	inTime            int64 // sum over packets
	linkLen, returned int   // bytes
	last              int64 // when a packet was last taken from a buffer
}

// Run simulates c. The error wraps ErrConfig.
func Run(c Config) (Result, error) {
	if err := c.Verify(); err != nil {
		return Result{}, err
	}
	s := &simulation{c: c}
	for v := range VCs {
		s.credit[v] = c.Credits
	}
	s.send()
	for len(s.queue) > 0 {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
	return s.result(), nil
}

func (s *simulation) schedule(t int64, do func()) {
	s.made++
	heap.Push(&s.queue, event{t, s.made, do})
}

// stageDone returns when a stage that is free at *free has done something that comes at t and
// takes d.
func stageDone(free *int64, t, d int64) int64 {
	*free = max(*free, t) + d
	return *free
}

// stageTime returns how long a stage takes for a frame of n units: ns for one, and a cycle for
// every 8 bytes more.
func stageTime(ns, n, unit int) int64 { return int64(ns)*nanosecond + int64((n-1)*unit)*perByte }

// sumCredits adds up the credits that the sender has, before they change.
func (s *simulation) sumCredits() {
	for v, n := range s.credit {
		if s.c.Packets[v] > s.r.Sent[v] { // the channel has packets that may use them
			s.held += int64(n) * (s.now - s.changed)
			s.until = s.now
		}
	}
	s.changed = s.now
}

// send begins with the next frame if the sender is idle: the channels take turns, and one that has
// not the credits for a frame is passed over.
func (s *simulation) send() {
	if s.busy {
		return
	}
	for range VCs {
		v := s.turn
		s.turn = (v + 1) % VCs
		n := min(s.c.Payload, s.c.Packets[v]-s.r.Sent[v])
		if n == 0 || s.credit[v] < n {
			continue
		}
		s.sumCredits()
		s.credit[v] -= n
		s.r.Sent[v] += n
		s.r.Frames++
		s.busy = true
		mapped := s.now + stageTime(mapping, n, packetLen[v])
		// The first stage is free for the next frame when the second has taken this one.
		begin := max(mapped, s.encap)
		s.schedule(begin, func() { s.busy = false; s.send() })
		s.schedule(stageDone(&s.encap, mapped, stageTime(encap, n, packetLen[v])), func() { s.sendFrame(v, n) })
		return
	}
}

// sendFrame sends a frame to the receiver.
func (s *simulation) sendFrame(v VC, n int) {
	size := max(overhead+n*packetLen[v], minFrame)
	s.linkLen += size
	arrives := transit(&s.link, s.now, size, (n-1)*packetLen[v])
	s.schedule(arrives, func() {
		s.schedule(stageDone(&s.decap, arrives, stageTime(decap, n, packetLen[v])), func() {
			if s.c.Stalled[v] {
				return
			}
			s.schedule(stageDone(&s.queueIn, s.now, stageTime(queueIn, n, packetLen[v])), func() {
				s.inTime += int64(n) * (s.now - arrives)
				s.r.Done[v] += n
				s.last = s.now
				s.returnBuffers(v, n)
			})
		})
	})
}

// transit returns when a frame that comes to a link at t is at its end. It has more bytes than the
// frame of table 9, whose time is that of one unit.
func transit(link *int64, t int64, size, more int) int64 {
	begin := max(*link, t)
	*link = begin + int64(size)*perLink
	return begin + (macOut+network+macIn)*nanosecond + int64(more)*perLink
}

// returnBuffers has n buffers return to the sender, in bulks.
func (s *simulation) returnBuffers(v VC, n int) {
	s.freed[v] += n
	b := s.c.Bulk
	for ; s.freed[v] >= b; s.freed[v] -= b {
		s.r.NOPs++
		size := max(overhead+b*nop, minFrame)
		s.returned += size
		s.schedule(stageDone(&s.nopEncap, s.now, stageTime(encap, b, nop)), func() {
			s.schedule(transit(&s.nopLink, s.now, size, (b-1)*nop), func() {
				s.schedule(stageDone(&s.nopDecap, s.now, stageTime(decap, b, nop)), func() {
					s.sumCredits()
					s.credit[v] += b
					s.send()
				})
			})
		})
	}
}

func (s *simulation) result() Result {
	r := s.r
	r.Ns = float64(s.last) / nanosecond
	sent, done, bytes := 0, 0, 0
	for v := range VCs {
		sent += r.Sent[v]
		done += r.Done[v]
		if v != NonPosted {
			bytes += r.Done[v] * data
		}
	}
	if r.Ns > 0 {
		r.GoodputGbps = float64(8*bytes) / r.Ns
		r.UseGbps = float64(8*s.linkLen) / r.Ns
		r.ReturnGbps = float64(8*s.returned) / r.Ns
	}
	if s.until > 0 {
		r.Credits = float64(s.held) / float64(s.until)
	}
	if sent > 0 { // Little: credits that wait = packets a time * time that they wait
		r.OutNs = float64(s.held) / nanosecond / float64(sent)
	}
	if done > 0 {
		r.InNs = float64(s.inTime) / nanosecond / float64(done)
	}
	return r
}
