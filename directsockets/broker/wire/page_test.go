package wire

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/foreigntest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/shm"
)

// exposed is the memory of a page that was mapped.
func exposed(p *Page) []byte { return p.seg.(*shm.Foreign).Exposed() }
func TestPage(t *testing.T) {
	netnstest.CheckFDs(t)
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.seg.Retire()
	q, err := MapPage(p.seg.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer q.seg.Retire()
	if len(exposed(q)) != 282624 || q.Generation() != 0 {
		t.Errorf("%d bytes, generation %d", len(exposed(q)), q.Generation())
	}
	for _, port := range []uint16{0, 1, 2, 3, 4, 80, 32767, 32768, 65534, 65535} {
		p.SetListeners(port, 3, false)
		for other := range 65536 {
			if q.Listener(uint16(other)) != (uint16(other) == port) {
				t.Fatalf("port %d is set, port %d is %v", port, other, q.Listener(uint16(other)))
			}
		}
		at := pageListenersOff + 2*int(port)
		if b := exposed(q)[at : at+2]; b[0] != 3 || b[1] != 0 {
			t.Errorf("port %d: %v", port, b)
		}
		p.SetListeners(port, 3, true)
		if !q.Deep(port) || q.Listeners(port) != 3 || q.Deep(port^1) {
			t.Errorf("port %d is not deep, or its neighbour is, or there are %d listeners", port, q.Listeners(port))
		}
		p.SetListeners(port, 0, false)
	}
	if g := q.Generation(); g != 30 {
		t.Errorf("generation %d", g)
	}
	p.SetListeners(9, 1<<20, false)
	if b := exposed(q)[pageListenersOff+18:]; b[0] != 0xff || b[1] != 0x7f || b[2] != 0 {
		t.Errorf("many listeners: %v", b[:4])
	}
	for _, bucket := range []uint32{0, 1, 4094, 4095} {
		p.AddOffer(bucket)
		p.AddOffer(bucket)
		p.RemoveOffer(bucket)
		if w := q.Word(bucket); w != 2<<16|1 {
			t.Errorf("bucket %d: %#x", bucket, w)
		}
		at := pageOffersOff + 4*int(bucket)
		if b := exposed(q)[at : at+4]; string(b) != "\x01\x00\x02\x00" {
			t.Errorf("bucket %d: %v", bucket, b)
		}
		p.RemoveOffer(bucket)
		if w := q.Word(bucket); w != 2<<16 {
			t.Errorf("bucket %d: %#x", bucket, w)
		}
	}
	// The counts come round, and saturate, without touching each other.
	for range 1<<16 - 2 {
		p.AddOffer(7)
	}
	if w := q.Word(7); w != 0xfffe<<16|0xfffe {
		t.Errorf("%#x", w)
	}
	for range 4 {
		p.AddOffer(7)
	}
	if w := q.Word(7); w != 2<<16|0xffff {
		t.Errorf("%#x", w)
	}
	p.RemoveOffer(7)
	p.RemoveOffer(7)
	p.RemoveOffer(7)
	if w := q.Word(7); w != 2<<16|0xffff || q.Word(6) != 0 || q.Word(8) != 0 {
		t.Errorf("%#x", w)
	}
}

// TestPageIsReadOnly has a client try to write.
func TestPageIsReadOnly(t *testing.T) {
	netnstest.CheckFDs(t)
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.seg.Retire()
	if _, err := unix.Pwrite(p.seg.Fd(), []byte{1}, 0); err == nil {
		t.Error("it can be written")
	}
	if unix.Ftruncate(p.seg.Fd(), 0) == nil {
		t.Error("it can be cut")
	}
	if b, err := unix.Mmap(p.seg.Fd(), 0, PageSize, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		unix.Munmap(b)
		t.Error("it can be mapped for writing")
	}
}

func TestHostilePage(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, head := range []string{"", "EXTDSPG\x01\x02"} {
		seg, err := shm.Create("test", PageSize)
		if err != nil {
			t.Fatal(err)
		}
		copy(seg.Bytes(), head)
		if _, err := MapPage(seg.Fd()); err == nil {
			t.Errorf("a page that begins with %q", head)
		}
		seg.Retire()
	}
	small, err := shm.Create("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Retire()
	if _, err := MapPage(small.Fd()); err == nil {
		t.Error("a page that is too small")
	}
}

func TestPageDoesNotAlloc(t *testing.T) {
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.seg.Retire()
	k := Key{Client: netip.MustParseAddrPort("10.2.0.1:1"), Server: netip.MustParseAddrPort("10.2.0.2:2")}
	if n := testing.AllocsPerRun(100, func() {
		p.Listener(80)
		p.Word(k.Bucket())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What the page says that it is, is read once.
func TestPageIsReadOnce(t *testing.T) {
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer p.seg.Retire()
	own := p.seg.(*shm.Segment)
	reads := foreigntest.Watch(t, func([]byte) bool { // a mapping for reading only
		return foreigntest.Flip(own.Bytes()[:len(pageMagic)])
	})
	q, err := MapPage(p.seg.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer q.seg.Retire()
	if read, again := reads.Bytes(); read != len(pageMagic) || again != 0 {
		t.Errorf("%d bytes read, %d of them again", read, again)
	}
	reads.Stop()
	if _, err := MapPage(p.seg.Fd()); err == nil {
		t.Error("a page that begins with something else")
	}
}
