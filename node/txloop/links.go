package txloop

import (
	"slices"

	"exnet/fabric/link"
)

// served is a link that the loop serves.
type served struct {
	link.Served
	rung bool // its descriptor was readable
}

// unwatched is how many bursts the loop handles before it looks at the links'
// descriptors without waiting: under load from others, a link that is down would not
// be noticed.
const unwatched = 1024

// Take implements link.Driver.
func (l *Loop) Take(s link.Served) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.taken = append(l.taken, s)
	l.Wake()
	return true
}

// adoptLinks begins to serve the links that were taken.
func (l *Loop) adoptLinks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.taken {
		s.Bind(l.place.home)
		// The last one first: what sends over links (package relay) is there before them, and
		// finds them awake when it is served, so that what it sends gathers until their next turn.
		l.links = slices.Insert(l.links, 0, served{Served: s})
	}
	l.taken = nil
}

// serveLinks calls Serve of each link, and returns the bytes that moved.
func (l *Loop) serveLinks() (bytes int) {
	down := false
	for i := range l.links {
		s := &l.links[i]
		n, ok := s.Serve(s.rung)
		s.rung = false
		if bytes += n; n > 0 {
			l.home.noteReceiver(*s)
		}
		if !ok {
			l.rest.removeAll()
			s.Leave()
			s.Served, down = nil, true
		}
	}
	if down {
		l.links = slices.DeleteFunc(l.links, func(s served) bool { return s.Served == nil })
	}
	if bytes > 0 {
		l.turn = nil
		l.stats.Received.Add(uint64(bytes))
	}
	return bytes
}

// disownLinks leaves all links, and accepts no more.
func (l *Loop) disownLinks() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.adoptLinks()
	l.rest.removeAll()
	for _, s := range l.links {
		s.Leave()
	}
	l.links = nil
}

var _ link.Driver = (*Loop)(nil)
