package shm

import (
	"bytes"
	"testing"

	"exnet/foreign"

	"golang.org/x/sys/unix"
)

// FillPast is Fill, wherever the memory begins and ends.
func TestFillPast(t *testing.T) {
	got, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(got)
	data := make([]byte, 1000)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	for _, at := range []int{0, 1, 8, 16, 64, 100} {
		for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 500, 704} {
			for from := range 3 {
				for _, more := range []int{0, 100} { // in the memory, then in what is copied
					for i := range got {
						got[i] = 0xee
					}
					want := bytes.Clone(got)
					copy(want[at:], data[from:from+n])
					if k := FillPast(foreign.Of(got).Part(at, n+more), data[from:from+n]); k != n || !bytes.Equal(got, want) {
						t.Errorf("%d bytes from %d to %d, and %d more: %d", n, from, at, more, k)
					}
					if k := FillPast(foreign.Of(got).Part(at, n), data[from:from+n+more]); k != n || !bytes.Equal(got, want) {
						t.Errorf("%d bytes of %d more from %d to %d: %d", n, more, from, at, k)
					}
				}
			}
		}
	}
}
