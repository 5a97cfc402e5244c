package connstats

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a program writes about its system calls is read, whatever it is; a table without has none.
func TestReadMissed(t *testing.T) {
	s, err := New(0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if stays, passes := ReadMissed(s.Fd()); stays != (Missed{}) || passes != (Missed{}) {
		t.Errorf("%+v, %+v of none", stays, passes)
	}
	long := strings.Repeat("x", missedLen-missedName)
	for i, m := range []Missed{{2, "libx.so", 0x1234}, {1 << 31, long, 1<<64 - 1}} {
		b := binary.LittleEndian.AppendUint64(nil, uint64(m.Count))
		b = append(binary.LittleEndian.AppendUint64(b, m.At), m.File...)
		if _, err := unix.Pwrite(s.Fd(), b, int64(missedOff+i*missedLen)); err != nil {
			t.Fatal(err)
		}
	}
	if stays, passes := ReadMissed(s.Fd()); stays != (Missed{2, "libx.so", 0x1234}) || passes != (Missed{1 << 31, long, 1<<64 - 1}) {
		t.Errorf("%+v, %+v", stays, passes)
	}
	if stays, passes := ReadMissed(-1); stays.Count+passes.Count != 0 {
		t.Error("no table has some")
	}
}
