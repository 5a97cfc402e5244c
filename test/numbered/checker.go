package numbered

import "fmt"

// Kind is what is wrong with a stream.
type Kind string

// Kinds of faults.
const (
	Missing   Kind = "missing"      // later bytes of the stream came
	Early     Kind = "out of order" // later bytes came first, and these after them
	Repeated  Kind = "repeated"     // earlier bytes of the stream came again
	Foreign   Kind = "foreign"      // bytes of another stream came
	Damaged   Kind = "damaged"      // what came is no stream's
	Short     Kind = "short"        // an end of file came
	Excessive Kind = "excessive"    // more came than there is
)

// Fault is the first byte of a stream that is wrong, and what came instead.
type Fault struct {
	Kind   Kind
	Stream        // the one that was due
	At     int64  // offset of the first byte that is wrong
	Len    int64  // Short, Excessive: of the stream
	From   Stream // Missing, Early, Repeated, Foreign: of which stream bytes came
	FromAt int64  // and their offset there
	Came   []byte // what came, at most 256 bytes
}

// Error implements error.
func (f *Fault) Error() string {
	at := fmt.Sprintf("%v, byte %d", f.Stream, f.At)
	switch f.Kind {
	case Missing:
		return fmt.Sprintf("%s: %d bytes are missing: byte %d came", at, f.FromAt-f.At, f.FromAt)
	case Early:
		return fmt.Sprintf("%s: out of order: byte %d came first", at, f.FromAt)
	case Repeated:
		return fmt.Sprintf("%s: repeated: byte %d came again", at, f.FromAt)
	case Foreign:
		return fmt.Sprintf("%s: foreign: byte %d of %v came", at, f.FromAt, f.From)
	case Short:
		return fmt.Sprintf("%s: an end of file before %d bytes", at, f.Len)
	case Excessive:
		return fmt.Sprintf("%s: more than %d bytes came: % x", at, f.Len, f.Came[:min(len(f.Came), 32)])
	}
	return fmt.Sprintf("%s: damaged: % x", at, f.Came[:min(len(f.Came), 32)])
}

// window is how many bytes that are wrong are looked at, unless the stream ends before.
const window = 256

// Checker compares what arrives with a stream.
type Checker struct {
	stream Stream
	len    int64
	right  int64  // bytes that came and are right
	wrong  []byte // what came after them
}

// NewChecker returns a checker of a stream of so many bytes.
func NewChecker(s Stream, n int64) *Checker { return &Checker{stream: s, len: n} }

// Wrong reports whether something came that differs, even if Check is still to name it.
func (c *Checker) Wrong() bool { return len(c.wrong) > 0 }

// Right returns how many bytes came and were right.
func (c *Checker) Right() int64 { return c.right }

// Done reports whether all bytes have come.
func (c *Checker) Done() bool { return c.right == c.len }

// Check takes bytes that have arrived. The error is a *Fault; a difference that later bytes are to
// explain is told by a later call.
func (c *Checker) Check(b []byte) error {
	if len(c.wrong) == 0 {
		n := c.stream.sameBytes(b[:min(int64(len(b)), c.len-c.right)], c.right)
		c.right += int64(n)
		b = b[n:]
	}
	c.wrong = append(c.wrong, b[:min(len(b), window-len(c.wrong))]...)
	if n := int64(len(c.wrong)); n == window || n > 0 && c.right+n >= c.len {
		return c.endFault()
	}
	return nil
}

// End takes the end of file, or another reason why no more will come.
func (c *Checker) End() error {
	if len(c.wrong) > 0 || c.right < c.len {
		return c.endFault()
	}
	return nil
}

// Compare compares b with the stream's bytes from offset at on. The error is a *Fault.
func (s Stream) Compare(b []byte, at int64) error {
	if n := s.sameBytes(b, at); n < len(b) {
		return explainFault(s, at+int64(n), at+int64(len(b)), b[n:])
	}
	return nil
}

func (c *Checker) endFault() error { return explainFault(c.stream, c.right, c.len, c.wrong) }

// explainFault names what is wrong with a stream of n bytes whose byte at is the first that
// differs, and in whose place came has come; nothing: the end of file.
func explainFault(s Stream, at, n int64, came []byte) *Fault {
	f := &Fault{Kind: Damaged, Stream: s, At: at, Len: n, Came: came}
	switch {
	case len(came) == 0:
		f.Kind = Short
		return f
	case at >= n:
		f.Kind = Excessive
		return f
	}
	// From the beginning of the word that differs: its first bytes are right, and may be another's.
	head := make([]byte, at%WordLen, int(at%WordLen)+len(came))
	s.Fill(head, at-at%WordLen)
	b := append(head, came...)
	skip := len(head)
	from, offset, ok := findRun(b, skip)
	if !ok { // a single word, in the place of another
		var number uint64
		if from, number, ok = parseWord(b); ok {
			offset = int64(number)*WordLen + int64(skip)
		}
	}
	if !ok || from == s && offset == at {
		return f
	}
	f.From, f.FromAt = from, offset
	switch {
	case from != s:
		f.Kind = Foreign
	case offset < at:
		f.Kind = Repeated
	case wordIsIn(s, at-at%WordLen, b):
		f.Kind = Early
	default:
		f.Kind = Missing
	}
	return f
}

// findRun looks for two words of a stream in a row, near the beginning of b, such that all bytes
// from skip on are that stream's. It returns the offset of byte skip there.
func findRun(b []byte, skip int) (s Stream, at int64, ok bool) {
	for i := range 2 * WordLen {
		if i+2*WordLen > len(b) {
			break
		}
		s, number, ok := parseWord(b[i:])
		if next, n, also := parseWord(b[i+WordLen:]); !ok || !also || next != s || n != number+1 {
			continue
		}
		at := int64(number)*WordLen - int64(i-skip)
		if at >= 0 && s.sameBytes(b[skip:], at) >= i+2*WordLen-skip {
			return s, at, true
		}
	}
	return s, 0, false
}

// wordIsIn reports whether the word at an offset of the stream is somewhere in b, or a word that
// follows it is where it belongs if b begins there: then nothing is missing.
func wordIsIn(s Stream, at int64, b []byte) bool {
	for i := range b {
		from, number, ok := parseWord(b[i:])
		if offset := int64(number) * WordLen; ok && from == s && (offset == at || offset == at+int64(i)) {
			return true
		}
	}
	return false
}
