package segment

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errOther says that a file is not the segment that was meant.
var errOther = errors.New("segment: another one, or none")

// Cut tells both ends of the segment in a file, if want wants its nonce, that the network does not
// carry their shadow any more: what they send from then on goes there. heed: both look at that. It
// writes 8 bytes, without a mapping, and is not for the ends' own use.
func Cut(fd int, want func(nonce [16]byte) bool) (nonce [16]byte, heed bool, err error) {
	var b [headLen]byte
	var h header
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nonce, false, fmt.Errorf("segment: %w", err)
	}
	if n, err := unix.Pread(fd, b[:], 0); err != nil || n != len(b) {
		return nonce, false, errOther
	}
	if h.get(&b, int(st.Size)) != nil || !want(h.info.Nonce) {
		return nonce, false, errOther
	}
	heed = true
	for _, side := range []Side{Client, Server} {
		base := int64(ctrlOff + int(side)*ctrlLen)
		if _, err := unix.Pwrite(fd, []byte{1, 0, 0, 0}, base+cutOff); err != nil {
			return nonce, false, fmt.Errorf("segment: %w", err)
		}
		var flags [4]byte
		if n, err := unix.Pread(fd, flags[:], base+flagsOff); err != nil || n != len(flags) {
			return nonce, false, errOther
		}
		heed = heed && flags[0]&flagHeeds != 0
	}
	return h.info.Nonce, heed, nil
}
