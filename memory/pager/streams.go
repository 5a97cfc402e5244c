package pager

// streams finds the strides in which a program goes through its memory, from the pages that it
// misses.
type streams struct {
	missed  [16]uint64 // the last pages missed, of no stream
	at      int
	streams [8]stream
	clock   uint64
	widest  int // what a window grows to
}

// newStreams returns those of a process that begins: their windows grow to a sixteenth of the
// share.
func (g *Pager) newStreams() streams {
	return streams{widest: min(max(g.limit/16, smallestWidest), largestWindow)}
}

// stream is a row of pages of equal distance.
type stream struct {
	next   uint64 // the page that is missed next, if it goes on
	stride int64
	window int
	used   uint64 // when, by the clock
}

// largestWindow bounds what is fetched ahead, in pages. A share of few pages has smaller ones.
const (
	largestWindow  = 512
	smallestWidest = 64
)

// missPage takes a page that is missing. It returns the stream that it belongs to, nil if it is
// none that is known: then window pages beyond it are to be fetched.
func (s *streams) missPage(number uint64) *stream {
	s.clock++
	for i := range s.streams {
		if t := &s.streams[i]; t.window > 0 && t.next == number {
			t.window = min(2*t.window, s.widest)
			return s.advanceStream(t, number)
		}
	}
	for _, before := range s.missed {
		if before == 0 || before == number {
			continue
		}
		stride := int64(number - before)
		if stride > maxStride || stride < -maxStride || !s.has(before-uint64(stride)) {
			continue
		}
		t := s.oldestStream()
		*t = stream{stride: stride, window: 4}
		return s.advanceStream(t, number)
	}
	s.missed[s.at] = number
	s.at = (s.at + 1) % len(s.missed)
	return nil
}

// maxStride is the largest stride looked for, in pages.
const maxStride = 1 << 16

func (s *streams) advanceStream(t *stream, number uint64) *stream {
	t.used = s.clock
	t.next = number + uint64(t.stride*int64(t.window+1))
	return t
}

func (s *streams) has(number uint64) bool {
	for _, m := range s.missed {
		if m == number && m != 0 {
			return true
		}
	}
	return false
}

func (s *streams) oldestStream() *stream {
	old := &s.streams[0]
	for i := range s.streams {
		if s.streams[i].used < old.used {
			old = &s.streams[i]
		}
	}
	return old
}

// expectNext says which page is missed next if the stream goes on; s may be nil.
func (s *stream) expectNext(number uint64) {
	if s != nil {
		s.next = number
	}
}
