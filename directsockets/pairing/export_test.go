package pairing

import (
	"encoding/binary"
	"time"

	"github.com/cilium/ebpf"
)

// YoungTime is for how long a connection keeps its place.
const YoungTime = time.Duration(youngTime)

// Layout is the directory below that of New.
const Layout = layout

// Program is the program that is attached.
func (p *Pairs) Program() *ebpf.Program { return p.program }

// Opened is what is in the place of a connection's numbers.
func (p *Pairs) Opened(client, server uint32) (numbers, cookie uint64, since time.Duration) {
	var v [openedLen]byte
	_ = p.opened.Lookup((client^server)%maxPairs, &v) // or there is nothing
	return binary.NativeEndian.Uint64(v[openedNumbers:]), binary.NativeEndian.Uint64(v[openedCookie:]),
		time.Duration(binary.NativeEndian.Uint64(v[openedSince:]))
}
