package foreign

// Frame is a frame or packet that somebody else has sent: Head is private and was
// copied once, Rest, which may be empty, is only ever copied on. The zero value is
// empty.
type Frame struct {
	head []byte
	rest Memory
}

// Private returns a Frame of memory that nobody else writes: all of it is Head.
func Private(b []byte) Frame { return Frame{head: b} }

// Split returns a Frame of m whose Head is as much of it as fits into buf, to which
// that is copied. The Frame borrows both.
func Split(m Memory, buf []byte) Frame {
	n := m.CopyTo(buf)
	return Frame{buf[:n:n], m.Part(n, m.Len()-n)}
}

// Len returns the number of bytes of head and rest.
func (f Frame) Len() int { return len(f.head) + len(f.rest.mem) }

// Head lends the private beginning of the frame.
func (f Frame) Head() []byte { return f.head }

// Rest is what follows Head.
func (f Frame) Rest() Memory { return f.rest }

// Part returns the n bytes from off on, which must begin within Head. It panics if
// they are not within f.
func (f Frame) Part(off, n int) Frame {
	head := f.head[off:]
	if n <= len(head) {
		return Frame{head: head[:n:n]}
	}
	return Frame{head, f.rest.Part(0, n-len(head))}
}

// CopyTo copies to p what fits, and returns how many bytes that is. Each byte is
// read once.
func (f Frame) CopyTo(p []byte) int {
	n := copy(p, f.head)
	return n + f.rest.CopyTo(p[n:])
}

// AppendTo appends all of f to p. Each byte is read once.
func (f Frame) AppendTo(p []byte) []byte {
	return f.rest.AppendTo(append(p, f.head...))
}

// Private returns f, all in memory that nobody else writes: a copy unless it is so
// already.
func (f Frame) Private() Frame {
	if f.rest.Len() == 0 {
		return f
	}
	b := make([]byte, f.Len())
	f.CopyTo(b)
	return Private(b)
}
