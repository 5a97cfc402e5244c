//go:build race

package directsockets

import "exnet/internal/shm"

// scribble changes a word as a hostile process would; atomically, since this one is
// in the same process, and the race detector is right about bytes.
func scribble(mem []byte, off int, b byte) {
	w := &shm.Words(mem, off&^7, 1)[0]
	shift := off % 8 * 8
	w.Store(w.Load()&^(0xff<<shift) | uint64(b)<<shift)
}
