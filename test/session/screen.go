package main

import (
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// screen is what a terminal shows since clearScreen: lines, of which the last one is written on.
type screen struct {
	marked chan struct{} // gets a value for each mark, and is closed at the end of the terminal

	mu sync.Mutex
	// +checklocks:mu
	begun time.Time
	// +checklocks:mu
	lines []output
	// +checklocks:mu
	line []rune
	// +checklocks:mu
	column int
	// +checklocks:mu
	unfinished []byte // of a character or an escape sequence that is not complete
}

// clearScreen empties the screen.
func (s *screen) clearScreen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.lines, s.line, s.column, s.unfinished = time.Now(), nil, nil, 0, nil
}

// shownLines returns what is on the screen.
func (s *screen) shownLines() []output {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.line) > 0 {
		s.endLine()
	}
	return slices.Clone(s.lines)
}

// showOutput shows what comes from a terminal until it ends.
func (s *screen) showOutput(r io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := r.Read(b)
		s.write(b[:n])
		if err != nil {
			close(s.marked)
			return // EIO: no process has the other end any more
		}
	}
}

// endLine ends a line.
//
// +checklocks:s.mu
func (s *screen) endLine() {
	s.lines = append(s.lines, output{time.Since(s.begun), strings.TrimRight(string(s.line), " ")})
	s.line, s.column = nil, 0
}

// write shows text. It obeys the control sequences with which programs rewrite a line, and
// drops all others, such as colours.
func (s *screen) write(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := append(s.unfinished, text...)
	for len(b) > 0 {
		n := 1
		switch b[0] {
		case mark:
			select {
			case s.marked <- struct{}{}:
			default:
			}
		case '\n':
			s.endLine()
		case '\r':
			s.column = 0
		case '\b':
			s.column = max(0, s.column-1)
		case '\t':
			s.putRune(' ')
			for s.column%8 != 0 {
				s.putRune(' ')
			}
		case 0x1b:
			if n = sequenceLength(b); n == 0 {
				s.unfinished = slices.Clone(b)
				return
			}
			if b[n-1] == 'K' {
				s.line = s.line[:min(s.column, len(s.line))]
			}
		default:
			if !utf8.FullRune(b) {
				s.unfinished = slices.Clone(b)
				return
			}
			var r rune
			if r, n = utf8.DecodeRune(b); r >= ' ' {
				s.putRune(r)
			}
		}
		b = b[n:]
	}
	s.unfinished = nil
}

// putRune writes a character at the cursor.
//
// +checklocks:s.mu
func (s *screen) putRune(r rune) {
	for len(s.line) <= s.column {
		s.line = append(s.line, ' ')
	}
	s.line[s.column] = r
	s.column++
}

// sequenceLength returns the length of the escape sequence that begins b, 0 if it is not complete.
func sequenceLength(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if b[1] != '[' {
		return 2
	}
	for i, c := range b[2:] {
		if c >= '@' && c <= '~' {
			return i + 3
		}
	}
	return 0
}
