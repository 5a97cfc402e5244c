package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// errOther says that a file is not the segment that was meant.
var errOther = errors.New("segment: another one, or none")

// Back says why a connection goes back to TCP. The zero Back is none.
type Back uint8

const (
	// BackNetwork says that the network does not carry the connection's shadow any more.
	BackNetwork Back = iota + 1
	// BackSwitch says that an operator has switched direct sockets off for the connection.
	BackSwitch
)

// networkCut is what the word cut of a control block holds then (SPEC.md, 2.2).
const networkCut = 1

// Cut tells both ends of the segment in a file, if want wants it, that the network is cut: what
// they send from then on goes over the shadow. heedBroker: both look at that. It writes 8 bytes,
// without a mapping, and is not for the ends' own use.
func Cut(fd int, want func(Info) bool) (of Info, heed bool, err error) {
	var b [headLen]byte
	var h header
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return of, false, fmt.Errorf("segment: %w", err)
	}
	if n, err := unix.Pread(fd, b[:], 0); err != nil || n != len(b) {
		return of, false, errOther
	}
	if h.decode(&b, int(st.Size)) != nil || !want(h.info) {
		return of, false, errOther
	}
	heed = true
	for _, side := range []Side{Client, Server} {
		base := int64(ctrlOff + int(side)*ctrlLen)
		if _, err := unix.Pwrite(fd, binary.LittleEndian.AppendUint32(nil, networkCut), base+cutOff); err != nil {
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
func (e *End) Back() Back {
	switch {
	case e.peer.cut.Load() != 0:
		return BackNetwork
	case (e.peer.attention.Load()|e.attention.Word())&offFlag != 0:
		return BackSwitch
	}
	return 0
}

// SwitchByte is the byte of a word of the statistics by which the broker switches a connection off
// (SPEC.md, 6.3).
const SwitchByte = 4

// SwitchedOff reports whether such a word says so.
func SwitchedOff(word *atomic.Uint64) bool { return word.Load()>>(8*SwitchByte)&0xff != 0 }

// onForGood is the word of who heeds none.
var onForGood atomic.Uint64

// HeedSwitch has this side look at a word of its entry in the statistics, which the broker writes.
// Call it before use.
func (e *End) HeedSwitch(word *atomic.Uint64) { e.switchWord = word }

// switchedOff reports whether the broker has switched the connection off.
func (e *End) switchedOff() bool { return SwitchedOff(e.switchWord) }

// heedChange tells the peer what the broker says, if that has changed.
func (e *End) heedChange() {
	if e.switchedOff() != e.toldOff.Load() {
		e.heedBroker()
	}
}

// heedBroker tells the peer what the broker says.
func (e *End) heedBroker() {
	if e.bad.Load() {
		return
	}
	e.mu.Lock()
	off := e.switchedOff()
	if e.toldOff.Store(off); off {
		e.attention.Change(0, 0, offFlag)
	} else {
		e.attention.Change(0, offFlag, 0)
	}
	e.mu.Unlock()
	e.ringIfArmed()
}
