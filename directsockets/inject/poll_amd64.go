package inject

import (
	"bytes"
	"encoding/binary"

	"exnet/internal/elffile"
)

// stackCheck is how a function of Go begins: cmp 16(%r14), %rsp. The library writes to the word at
// 16(%r14).
var stackCheck = []byte{0x49, 0x3b, 0x66, 0x10}

// callSites finds the calls that lead to the library. A program without them does without: its
// goroutines are parked, and its handlers find its threads in unknown code.
func callSites(f *elffile.File) (sites []site) {
	found := functionsOf(f, pollWait, pollCalling, signalHandler, signalCalling)
	if s, ok := callSite(f, found[pollWait], found[pollCalling], stackCheck); ok {
		s.to = symPoll
		sites = append(sites, s)
	}
	if s, ok := callSite(f, found[signalHandler], found[signalCalling], nil); ok {
		s.to = symSignal
		sites = append(sites, s)
	}
	return sites
}

// callSite finds the one call of a function in another, which begins so.
func callSite(f *elffile.File, to, from function, begin []byte) (s site, ok bool) {
	code := codeOf(f, to, from)
	if !bytes.HasPrefix(code, begin) {
		return s, false
	}
	for at := 0; at+jumpSize <= len(code); at++ {
		here := from.entry + uint64(at)
		if calledBy(code[at:], here) == to.entry {
			if ok {
				return s, false // there is another
			}
			s, ok = site{at: here, calls: to.entry}, true
		}
	}
	return s, ok
}

// calledBy returns what the call at an address calls; 0: there is none.
func calledBy(code []byte, at uint64) uint64 {
	if code[0] != callCode {
		return 0
	}
	return at + jumpSize + uint64(int32(binary.LittleEndian.Uint32(code[1:])))
}

// callCode is the opcode of a call whose distance follows in four bytes.
const callCode = 0xe8

// callStub returns the stub at an address for a call of Go: r11 has what the program calls. nil:
// something is too far.
func callStub(at, calls, entry uint64) []byte {
	const size = 7
	b := append([]byte{0x4c, 0x8d, 0x1d}, make([]byte, size-3)...) // lea calls(%rip), %r11
	near := encodeJump(at+size-jumpSize, calls)
	j := encodeJump(at+size, entry)
	if near == nil || j == nil {
		return nil
	}
	copy(b[3:], near[1:])
	return append(b, j...)
}
