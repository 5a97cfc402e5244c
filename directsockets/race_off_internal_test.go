//go:build !race

package directsockets

// scribble writes a byte as a hostile process would.
func scribble(mem []byte, off int, b byte) { mem[off] = b }
