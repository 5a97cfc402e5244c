package numbered

import (
	"math/rand/v2"
	"testing"
)

// What Fill writes is what Check takes, in pieces of any size, and End counts.
func TestRight(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := Stream{Conn: uint32(rnd.IntN(MaxConn + 1)), Down: rnd.IntN(2) == 0}
		n := logSize(rnd, 1<<20)
		c := NewChecker(s, n)
		for at := int64(0); at < n; {
			if err := c.End(); err == nil {
				t.Fatalf("%v ends at %d of %d", s, at, n)
			}
			b := make([]byte, min(n-at, logSize(rnd, 1<<16)))
			s.Fill(b, at)
			if err := c.Check(b); err != nil {
				t.Fatal(err)
			}
			at += int64(len(b))
		}
		if err := c.End(); err != nil || c.Right() != n || !c.Done() {
			t.Errorf("%d of %d bytes: %v", c.Right(), n, err)
		}
	}
}

// A word says what it is, and hardly any other eight bytes do.
func TestWord(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	chance := 0
	for range 10_000 {
		s := Stream{Conn: uint32(rnd.IntN(MaxConn + 1)), Down: rnd.IntN(2) == 0}
		number := rnd.Uint64N(1 << numberBits)
		var b [WordLen]byte
		s.Fill(b[:], int64(number)*WordLen)
		if got, n, ok := parseWord(b[:]); !ok || got != s || n != number {
			t.Fatalf("word %d of %v is %d of %v, %v", number, s, n, got, ok)
		}
		b[rnd.IntN(WordLen)] ^= byte(1 + rnd.IntN(255))
		if _, _, ok := parseWord(b[:]); ok {
			chance++
		}
	}
	if chance > 10_000/40 {
		t.Errorf("%d of 10000 damaged words count as words", chance)
	}
}
