package soak

import (
	"os"
	"sync/atomic"
)

// spoiler does what the soak is to find, to show that it does: flag -soak.break. Its methods may be
// called on nil, which does nothing.
//
//	corrupt  one byte of a stream is changed before it is sent
//	lose     the last 100 bytes of a stream are not sent
//	leak     a server keeps a descriptor for some of its connections
type spoiler struct {
	what string
	n    atomic.Int64
}

// spoilAt is the number of the stream that is spoilt.
const spoilAt = 20

func newSpoiler(what string) *spoiler {
	if what == "" {
		return nil
	}
	return &spoiler{what: what}
}

// length returns how much of a stream of n bytes is sent.
func (s *spoiler) length(n int64) int64 {
	if s != nil && s.what == "lose" && n > 1000 && s.n.Add(1) == spoilAt {
		return n - 100
	}
	return n
}

// bytes returns what of a stream is sent.
func (s *spoiler) bytes(b []byte) []byte {
	if s != nil && s.what == "corrupt" && s.n.Add(1) == spoilAt {
		b[len(b)/2] ^= 4
	}
	return b
}

// accepted is called for each connection.
func (s *spoiler) accepted() {
	if s != nil && s.what == "leak" && s.n.Add(1)%spoilAt == 0 {
		if r, _, err := os.Pipe(); err == nil {
			kept = append(kept, r)
		}
	}
}

var kept []*os.File
