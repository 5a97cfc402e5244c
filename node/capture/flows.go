package capture

import (
	"net/netip"
	"sync"

	"exnet/foreign"
)

// Known is an end of a connection of a program, as its broker knows it.
type Known struct {
	UDP           bool
	Local, Remote netip.AddrPort
	Server        bool
	Process       string
	// Wanted: it is to be captured, and so are the connections that its server's address has with
	// others if Server is set or AnyClient is.
	Wanted    bool
	AnyClient bool
}

// flow names the packets from one end of a connection to the other.
type flow struct {
	udp      bool
	from, to netip.AddrPort
}

func (f flow) reversed() flow { return flow{f.udp, f.to, f.from} }

// place is an end that a server has.
type place struct {
	udp bool
	at  netip.AddrPort
}

// Flows decides which packets are of the connections that are captured, and writes these. A packet
// may come before its broker knows the connection: it waits for two calls of Know.
//
// Concurrency: all methods may be called from many goroutines.
type Flows struct {
	mu sync.Mutex
	// processes at the two ends of a flow that is known, whichever namespace they are in.
	processes map[flow]string // +checklocks:mu
	// seen: who writes the packets of a connection, in both directions; nil: who did has left, and
	// whoever sees the next one does.
	seen map[flow]*Watched // +checklocks:mu
	told map[flow]bool     // +checklocks:mu
}

// NewFlows makes one.
func NewFlows() *Flows {
	return &Flows{processes: make(map[flow]string), seen: make(map[flow]*Watched), told: make(map[flow]bool)}
}

// maxFlows bounds what Flows remembers. Beyond, it forgets all: a packet may then be written twice.
const maxFlows = 1 << 16

// Watched is a network namespace whose packets are captured, until Leave. Flows' mutex guards it.
type Watched struct {
	f  *Flows
	to *Source
	// flows and servers are those that are wanted; foreign are flows that nobody wanted in time.
	flows, foreign map[flow]bool
	servers        map[place]bool
	links          map[flow]int // the interface on which the packets of a flow are taken
	waiting        []waiting
	bytes          int // of these
}

// waiting is a packet of which it is not known yet whether it is wanted.
type waiting struct {
	Seen
	data  []byte
	looks int // since it came
}

// maxWaiting bounds what waits in one namespace, in bytes.
const maxWaiting = 4 << 20

// waitLooks is how many looks a packet waits for.
const waitLooks = 2

// Watch writes what is wanted of a network namespace to to.
func (f *Flows) Watch(to *Source) *Watched {
	return &Watched{f: f, to: to, flows: make(map[flow]bool), servers: make(map[place]bool), links: make(map[flow]int), foreign: make(map[flow]bool)}
}

// Know takes what the broker of the namespace knows now.
func (w *Watched) Know(all []Known) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, k := range all {
		out := flow{k.UDP, plainAddr(k.Local), plainAddr(k.Remote)}
		if k.Process != "" {
			w.f.processes[out] = k.Process
		}
		if !k.Wanted {
			continue
		}
		w.flows[out], w.flows[out.reversed()] = true, true
		switch {
		case k.Server:
			w.servers[place{k.UDP, out.from}] = true
		case k.AnyClient:
			w.servers[place{k.UDP, out.to}] = true
		}
	}
	w.settleLocked()
	if max(len(w.f.seen), len(w.f.processes), len(w.flows), len(w.links), len(w.foreign)) > maxFlows {
		clear(w.f.seen)
		clear(w.f.processes)
		clear(w.f.told)
		clear(w.flows)
		clear(w.links)
		clear(w.foreign)
	}
}

// settleLocked decides what can be decided of the packets that wait.
//
// +checklocks:w.f.mu
func (w *Watched) settleLocked() {
	kept := w.waiting[:0]
	w.bytes = 0
	for _, p := range w.waiting {
		p.looks++
		switch {
		case w.wantsLocked(p.flow()):
			w.writeLocked(p.Seen)
		case p.looks >= waitLooks:
			w.foreign[p.flow()] = true
		default:
			kept = append(kept, p)
			w.bytes += len(p.data)
		}
	}
	clear(w.waiting[len(kept):])
	w.waiting = kept
}

func (s Seen) flow() flow { return flow{s.UDP, s.From, s.To} }

// plainAddr is an address as packets have it.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// wantsLocked reports whether the packets of a flow are to be captured, as far as it is known.
//
// +checklocks:w.f.mu
func (w *Watched) wantsLocked(f flow) bool {
	return w.flows[f] || w.servers[place{f.udp, f.to}] || w.servers[place{f.udp, f.from}]
}

// Take takes a packet, which it borrows. It writes how many were lost before, whosever they were.
func (w *Watched) Take(s Seen) {
	w.to.Missed(uint64(s.Lost))
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	f := s.flow()
	switch {
	case w.wantsLocked(f):
		w.writeLocked(s)
	case w.foreign[f]:
	case w.bytes+s.Data.Len() > maxWaiting:
		w.to.Missed(1)
	default:
		data := s.Data.AppendTo(nil)
		s.Data = foreign.Private(data)
		w.waiting = append(w.waiting, waiting{Seen: s, data: data})
		w.bytes += len(data)
	}
}

// writeLocked writes a packet, unless it was seen elsewhere: a packet passes the interfaces of both
// ends' namespaces, and those in between.
//
// +checklocks:w.f.mu
func (w *Watched) writeLocked(s Seen) {
	f := s.flow()
	either := f
	if f.to.Compare(f.from) < 0 {
		either = f.reversed()
	}
	switch w.f.seen[either] {
	case w:
	case nil:
		w.f.seen[either] = w
	default:
		return
	}
	if link, ok := w.links[f]; !ok {
		w.links[f] = s.Link
	} else if link != s.Link {
		return
	}
	if !w.f.told[f] {
		if s.Comment = w.f.commentLocked(f); s.Comment != "" {
			w.f.told[f] = true
		}
	}
	w.to.Packet(s.Packet)
}

// Leave ends the capture in the namespace, where Take and Know are not called any more. Another
// namespace may see the same connections, or another Watched be of the same one.
func (w *Watched) Leave() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for f, at := range w.f.seen {
		if at == w {
			w.f.seen[f] = nil
		}
	}
}

// commentLocked names the processes at the ends of a flow; "": none is known.
//
// +checklocks:f.mu
func (f *Flows) commentLocked(of flow) string {
	from, to := f.processes[of], f.processes[of.reversed()]
	switch {
	case from != "" && to != "":
		return from + " to " + to
	case from != "":
		return "from " + from
	case to != "":
		return "to " + to
	}
	return ""
}

// Count is how many connections and flows were written.
func (f *Flows) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}
