package connstats

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Missed are system calls of a program that no jump can replace, so that they do not come to the
// preload library.
type Missed struct {
	Count uint32
	// File has the first of them, at an address of its own. "": the program.
	File string
	At   uint64
}

// Layout of a Missed in the head of the statistics (SPEC.md, 6.3): those for which all sockets stay
// the kernel's, and those that go past the library.
const (
	missedOff   = 32
	missedLen   = 80
	missedAtOff = 8
	missedName  = 16
)

// ReadMissed returns those of the program that has written the statistics fd: for stays, all its
// sockets stay the kernel's; what passes goes past the library, which has its other calls.
func ReadMissed(fd int) (stays, passes Missed) {
	var b [2 * missedLen]byte
	if Check(fd) != nil {
		return stays, passes
	}
	if n, err := unix.Pread(fd, b[:], missedOff); err != nil || n != len(b) {
		return stays, passes
	}
	return parseMissed(b[:missedLen]), parseMissed(b[missedLen:])
}

func parseMissed(b []byte) Missed {
	name, _, _ := bytes.Cut(b[missedName:missedLen], []byte{0})
	return Missed{binary.LittleEndian.Uint32(b), string(name), binary.LittleEndian.Uint64(b[missedAtOff:])}
}
