package foreign

import (
	"bytes"
	"os"
	"testing"

	"exnet/internal/foreigntest"
)

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestMemory(t *testing.T) {
	data := pattern(300)
	m := Of(bytes.Clone(data))
	part := m.Part(100, 50)
	small, large := make([]byte, 20), make([]byte, 90)
	if m.Len() != 300 || part.Len() != 50 || part.CopyTo(small) != 20 || part.CopyTo(large) != 50 {
		t.Error("lengths")
	}
	if !bytes.Equal(small, data[100:120]) || !bytes.Equal(large[:50], data[100:150]) || large[50] != 0 {
		t.Error("CopyTo copies something else")
	}
	if got := part.AppendTo([]byte("head")); string(got[:4]) != "head" || !bytes.Equal(got[4:], data[100:150]) {
		t.Errorf("AppendTo: %x", got)
	}
	if n := part.Fill(bytes.Repeat([]byte{1}, 60)); n != 50 {
		t.Errorf("Fill of 60 bytes into 50: %d", n)
	}
	if got := m.AppendTo(nil); got[99] != data[99] || got[100] != 1 || got[149] != 1 || got[150] != data[150] {
		t.Error("Fill wrote something else")
	}
	m.PutUint32(8, 0x01020304)
	m.PutUint64(16, 0x05060708090a0b0c)
	if got := m.AppendTo(nil)[8:24]; !bytes.Equal(got, append(append([]byte{4, 3, 2, 1}, data[12:16]...), 12, 11, 10, 9, 8, 7, 6, 5)) {
		t.Errorf("numbers: %x", got)
	}
	for _, f := range []func(){
		func() { m.Part(0, 301) }, func() { m.Part(301, 0) }, func() { m.Part(-1, 2) }, func() { part.Part(0, 51) },
		func() { Memory{}.Part(0, 1) }, func() { Private(data).Part(1, 300) }, func() { Split(m, small).Part(21, 1) },
	} {
		if !panics(f) {
			t.Error("a part that is not within its memory")
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// A frame has the same bytes, wherever its head ends and whatever part is taken.
func TestFrame(t *testing.T) {
	data := pattern(200)
	for _, head := range []int{0, 1, 14, 192, 200, 300} {
		f := Split(Of(bytes.Clone(data)), make([]byte, head))
		if f.Len() != 200 || len(f.Head()) != min(head, 200) || f.Rest().Len() != 200-len(f.Head()) {
			t.Fatalf("head of %d: %d, %d and %d", head, f.Len(), len(f.Head()), f.Rest().Len())
		}
		for off := 0; off <= len(f.Head()); off += 7 {
			for _, n := range []int{0, 1, 50, 200 - off} {
				if off+n > 200 {
					continue
				}
				p := f.Part(off, n)
				got := make([]byte, n)
				if p.Len() != n || p.CopyTo(got) != n || !bytes.Equal(got, data[off:off+n]) || !bytes.Equal(p.AppendTo(nil), got) {
					t.Errorf("head of %d, %d bytes at %d: %x", head, n, off, got)
				}
				if q := p.Private(); q.Rest().Len() != 0 || !bytes.Equal(q.Head(), got) {
					t.Errorf("private: %x", q.Head())
				}
			}
		}
	}
}

// The device of the tests finds a read that is repeated, and nothing else: the
// planted fault decides by memory that it reads again.
func TestSecondReadIsFound(t *testing.T) {
	version := func(m Memory) (first, second byte) {
		var a, b [1]byte
		m.CopyTo(a[:])
		m.CopyTo(b[:]) // the fault
		return a[0], b[0]
	}
	mem := []byte{0x45, 1, 2, 3}
	reads := foreigntest.Watch(t, foreigntest.Flip)
	if first, second := version(Of(mem)); first != 0x45 || second == first {
		t.Errorf("read %#x, then %#x", first, second)
	}
	if read, again := reads.Bytes(); read != 1 || again != 1 {
		t.Errorf("%d bytes, %d of them again", read, again)
	}
	reads.Reset()
	f := Split(Of(pattern(1000)), make([]byte, 100))
	for range 3 {
		f.Part(14, 60).Head()[0]++ // private
	}
	f.CopyTo(make([]byte, 1000))
	if read, again := reads.Bytes(); read != 1000 || again != 0 {
		t.Errorf("%d bytes, %d of them again", read, again)
	}
	reads.Stop()
	if Of(mem).CopyTo(make([]byte, 4)); mem[1] != 1 {
		t.Error("memory changes although nobody watches")
	}
}

func TestRawWritev(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	data := pattern(3000)
	for _, f := range []Frame{{}, Private(data[:10]), Split(Of(data), nil), Split(Of(data), make([]byte, 192))} {
		if errno := f.RawWritev(int(w.Fd()), []byte("hdr")); errno != 0 {
			t.Fatal(errno)
		}
		got := make([]byte, 4000)
		n, err := r.Read(got)
		if want := append([]byte("hdr"), data[:f.Len()]...); err != nil || !bytes.Equal(got[:n], want) {
			t.Errorf("%d bytes %v, want %d", n, err, len(want))
		}
	}
	if errno := Private(data).RawWritev(-1, data); errno == 0 {
		t.Error("written to no descriptor")
	}
}

func TestNoAllocations(t *testing.T) {
	mem := pattern(3000)
	var head [192]byte
	dst := make([]byte, 4000)
	if n := testing.AllocsPerRun(100, func() {
		f := Split(Of(mem), head[:])
		f = f.Part(14, f.Len()-14).Part(0, 2000)
		if f.CopyTo(dst) != 2000 || len(f.AppendTo(dst[:0])) != 2000 {
			t.Error("length")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
