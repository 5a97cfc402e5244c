package numbered

import (
	"encoding/binary"
	"fmt"
)

// WordLen is the length of a word in bytes.
const WordLen = 8

// Parts of a word.
const (
	numberBits = 36
	connBits   = 20
	checkShift = numberBits + connBits + 1
)

// MaxConn is the highest number of a connection.
const MaxConn = 1<<connBits - 1

// Stream names one direction of a connection.
type Stream struct {
	Conn uint32 // at most MaxConn
	Down bool   // from the server to the client
}

func (s Stream) String() string {
	if s.Down {
		return fmt.Sprintf("connection %d down", s.Conn)
	}
	return fmt.Sprintf("connection %d up", s.Conn)
}

// checkBits returns the check of a word's other bits. Zeros are no word.
func checkBits(w uint64) uint64 { return (w + 1) * 0x9e3779b97f4a7c15 >> checkShift }

// wordAt returns a word of the stream by its number.
func (s Stream) wordAt(number uint64) uint64 {
	w := number&(1<<numberBits-1) | uint64(s.Conn&MaxConn)<<numberBits
	if s.Down {
		w |= 1 << (numberBits + connBits)
	}
	return w | checkBits(w)<<checkShift
}

// parseWord returns whose word the first bytes of b are; false: they are none.
func parseWord(b []byte) (s Stream, number uint64, ok bool) {
	if len(b) < WordLen {
		return s, 0, false
	}
	w := binary.LittleEndian.Uint64(b)
	body := w & (1<<checkShift - 1)
	s = Stream{Conn: uint32(body >> numberBits & MaxConn), Down: body>>(numberBits+connBits) == 1}
	return s, body & (1<<numberBits - 1), checkBits(body) == w>>checkShift
}

// Fill writes the stream's bytes from offset at on into b.
func (s Stream) Fill(b []byte, at int64) {
	number := uint64(at) / WordLen
	var w [WordLen]byte
	if skip := at % WordLen; skip != 0 {
		binary.LittleEndian.PutUint64(w[:], s.wordAt(number))
		b = b[copy(b, w[skip:]):]
		number++
	}
	for ; len(b) >= WordLen; number++ {
		binary.LittleEndian.PutUint64(b, s.wordAt(number))
		b = b[WordLen:]
	}
	binary.LittleEndian.PutUint64(w[:], s.wordAt(number))
	copy(b, w[:])
}

// sameBytes returns how many of the first bytes of b are the stream's from offset at on.
func (s Stream) sameBytes(b []byte, at int64) int {
	number, n := uint64(at)/WordLen, 0
	var w [WordLen]byte
	if skip := int(at % WordLen); skip != 0 {
		binary.LittleEndian.PutUint64(w[:], s.wordAt(number))
		if n = commonLength(b, w[skip:]); n < WordLen-skip {
			return n
		}
		number++
	}
	for ; len(b)-n >= WordLen && binary.LittleEndian.Uint64(b[n:]) == s.wordAt(number); number++ {
		n += WordLen
	}
	binary.LittleEndian.PutUint64(w[:], s.wordAt(number))
	return n + commonLength(b[n:], w[:])
}

// commonLength returns how many of the first bytes of a and b are equal.
func commonLength(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
