package numbered

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// ParseFault says what a line of a program says is wrong: "fault WHAT", or what the programs in C
// print, "wrong CONN DOWN OFFSET LEN BYTES". It returns "" for any other line.
func ParseFault(line string) string {
	if what, ok := strings.CutPrefix(line, "fault "); ok {
		return what
	}
	if !strings.HasPrefix(line, "wrong ") {
		return ""
	}
	var s Stream
	var down int
	var at, n int64
	var text string
	if k, err := fmt.Sscanf(line, "wrong %d %d %d %d %s", &s.Conn, &down, &at, &n, &text); k < 4 {
		return fmt.Sprintf("%q: %v", line, err)
	}
	came, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Sprintf("%q: %v", line, err)
	}
	s.Down = down == 1
	return explainFault(s, at, n, came).Error()
}

// ParseSum reads a line "sum CONNS BYTES WRONG".
func ParseSum(line string) (s Sum, ok bool) {
	n, _ := fmt.Sscanf(line, "sum %d %d %d", &s.Conns, &s.Bytes, &s.Wrong)
	return s, n == 3
}
