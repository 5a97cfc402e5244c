package capture

import (
	"sync"

	"exnet/exteth"
	"exnet/foreign"
)

// smallLen is the length of a small buffer: most frames are acknowledgements or
// fit an Ethernet MTU.
const smallLen = 2048

// largeLen is the length of a large buffer: the longest frame that an interface
// carries, a 65535-byte packet with its header.
const largeLen = exteth.EthernetHeaderLen + 65535

// buffers is the memory of frames in the queue, which bounds its size.
type buffers struct{ small, large *sync.Pool }

func newBuffers() buffers {
	pool := func(n int) *sync.Pool {
		return &sync.Pool{New: func() any {
			b := make([]byte, 0, n)
			return &b
		}}
	}
	return buffers{pool(smallLen), pool(largeLen)}
}

// copyFrame returns a copy of a frame.
func (p buffers) copyFrame(frame foreign.Frame) *[]byte {
	pool := p.small
	if frame.Len() > smallLen {
		pool = p.large
	}
	b := pool.Get().(*[]byte)
	*b = frame.AppendTo((*b)[:0])
	return b
}

// putBack takes a copy back.
func (p buffers) putBack(b *[]byte) {
	if cap(*b) > smallLen {
		p.large.Put(b)
		return
	}
	p.small.Put(b)
}
