package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errOther says that a file is not the segment that was meant.
var errOther = errors.New("segment: another one, or none")

// Back says why a connection goes back to TCP: what the word cut of a control block holds (SPEC.md,
// 3). The zero Back is none.
type Back uint32

const (
	// BackNetwork says that the network does not carry the connection's shadow any more.
	BackNetwork Back = iota + 1
	// BackSwitch says that an operator has switched direct sockets off for the connection.
	BackSwitch
)

// Cut tells both ends of the segment in a file, if want wants it, to go back to TCP: what they send
// from then on goes over the shadow. heed: both look at that. It writes 8 bytes, without a mapping,
// and is not for the ends' own use.
func Cut(fd int, why Back, want func(Info) bool) (of Info, heed bool, err error) {
	var b [headLen]byte
	var h header
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return of, false, fmt.Errorf("segment: %w", err)
	}
	if n, err := unix.Pread(fd, b[:], 0); err != nil || n != len(b) {
		return of, false, errOther
	}
	if h.get(&b, int(st.Size)) != nil || !want(h.info) {
		return of, false, errOther
	}
	heed = true
	for _, side := range []Side{Client, Server} {
		base := int64(ctrlOff + int(side)*ctrlLen)
		if _, err := unix.Pwrite(fd, binary.LittleEndian.AppendUint32(nil, uint32(why)), base+cutOff); err != nil {
			return of, false, fmt.Errorf("segment: %w", err)
		}
		var flags [4]byte
		if n, err := unix.Pread(fd, flags[:], base+flagsOff); err != nil || n != len(flags) {
			return of, false, errOther
		}
		heed = heed && flags[0]&flagHeeds != 0
	}
	return h.info, heed, nil
}

// Back says why this connection goes back to TCP; 0: it does not. It may be called from any
// goroutine.
func (e *End) Back() Back { return Back(e.peer.cut.Load()) }
