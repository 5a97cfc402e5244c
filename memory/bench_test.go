package memory_test

import (
	"fmt"
	"testing"

	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// BenchmarkReadAt reads at changing places of 64 MiB, all of it touched before: of another node of
// the host, and, as a control, of this program's own memory.
func BenchmarkReadAt(b *testing.B) {
	const size = 64 << 20
	f := pooltest.New(b, pool.Config{}, lending(size))
	s, err := memory.Borrow(b.Context(), memory.Config{Socket: f.Socket(0), Size: size})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	own := make([]byte, size)
	if _, err := s.WriteAt(own, 0); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{4 << 10, 1 << 20} {
		p := make([]byte, n)
		if _, err := s.ReadAt(own, 0); err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			name string
			read func(off int64) error
		}{
			{"lease", func(off int64) error { _, err := s.ReadAt(p, off); return err }},
			{"copy", func(off int64) error { copy(p, own[off:]); return nil }},
		} {
			b.Run(fmt.Sprintf("bytes=%d/of=%s", n, c.name), func(b *testing.B) {
				b.SetBytes(int64(n))
				var off int64
				for b.Loop() {
					if err := c.read(off); err != nil {
						b.Fatal(err)
					}
					off = (off + 16381*4096) % (size - 1<<20) // far from the last place
				}
			})
		}
	}
}
