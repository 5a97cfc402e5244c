package atu

import (
	"bytes"
	"errors"
	"testing"

	"exnet/fabric"
)

// A page list is one range of addresses: from its first offset to the part of its last page.
func TestRegisterPages(t *testing.T) {
	u := New(self)
	mem, err := u.Alloc(8 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	page := func(i int) []byte { return mem[i*PageSize : (i+1)*PageSize] }
	for i := range 8 {
		copy(page(i), bytes.Repeat([]byte{byte('a' + i)}, PageSize))
	}
	const first = 4000
	n := 2*PageSize - first + 10 // 10 bytes of the third page
	r, err := u.RegisterPages(vpid, [][]byte{page(6), page(2), page(3)}, first, n, Read|Write)
	if err != nil {
		t.Fatal(err)
	}
	nla, err := r.LendAll()
	if err != nil || nla.Offset() != first {
		t.Fatalf("address %v: %v", nla, err)
	}
	w, err := u.Translate(nla, n, vpid, peer, Read|Write)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Join([][]byte{page(6)[first:], page(2), page(3)[:10]}, nil)
	if !bytes.Equal(w.Bytes(), want) {
		t.Error("the range has other bytes than the pages")
	}
	for i := range w.Bytes() {
		w.Bytes()[i] = byte(i)
	}
	w.Release()
	if got := bytes.Join([][]byte{page(6)[first:], page(2), page(3)[:10]}, nil); !bytes.Equal(got, r.Bytes()) {
		t.Error("what was written to the range is not in the pages")
	}
	if page(6)[first-1] != 'g' || page(3)[10] != 'd' {
		t.Error("bytes outside of the range have changed")
	}
	for _, bad := range []NLA{nla - 1, nla + 1} {
		if _, err := u.Translate(bad, n, vpid, peer, Read); !errors.Is(err, ErrBounds) {
			t.Errorf("%v: %v, want ErrBounds", bad, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Translate(nla, 1, vpid, peer, Read); !errors.Is(err, ErrUnmapped) {
		t.Errorf("after Close: %v", err)
	}
}

func TestRegisterPagesRefuses(t *testing.T) {
	u := New(self)
	mem, err := u.Alloc(2 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	one, two := mem[:PageSize], mem[PageSize:2*PageSize]
	for name, c := range map[string]struct {
		pages    [][]byte
		first, n int
		a        Access
	}{
		"no page":                   {nil, 0, 1, Read},
		"an offset beyond the page": {[][]byte{one, two}, PageSize, 1, Read},
		"a page too many":           {[][]byte{one, two}, 0, PageSize, Read},
		"a page too few":            {[][]byte{one}, 1, PageSize, Read},
		"part of a page":            {[][]byte{one[:100]}, 0, 100, Read},
		"not at a page boundary":    {[][]byte{mem[1 : PageSize+1]}, 0, 100, Read},
		"other memory":              {[][]byte{make([]byte, PageSize)}, 0, 100, Read},
		"no access":                 {[][]byte{one}, 0, 100, 0},
	} {
		if _, err := u.RegisterPages(vpid, c.pages, c.first, c.n, c.a); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
