package inject

import (
	"encoding/binary"

	"exnet/internal/elffile"
)

// stackCheck is how a function of Go begins: ldr x16, [x28, #16]. The library writes to this word.
const stackCheck = 0xf9400b90

// pollSite finds that call. A program without it does without: its goroutines are parked.
func pollSite(f *elffile.File) (s site, ok bool) {
	found := functionsOf(f, pollWait, pollCalling)
	to, from := found[pollWait], found[pollCalling]
	code := codeOf(f, to, from)
	if len(code) < 4 || binary.LittleEndian.Uint32(code) != stackCheck {
		return s, false
	}
	for at := 0; at+jumpSize <= len(code); at += jumpSize {
		here := from.entry + uint64(at)
		call, near := encodeBranch(callCode, here, to.entry)
		if near && binary.LittleEndian.Uint32(code[at:]) == call {
			if ok {
				return s, false // there is another
			}
			s, ok = site{at: here, kind: callsPoll, calls: to.entry}, true
		}
	}
	return s, ok
}
