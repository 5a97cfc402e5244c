package atu

import (
	"errors"
	"testing"
	"time"

	"exnet/fabric"
)

// fakeBook is a book whose reader can be told to read.
type fakeBook struct {
	shown     map[NLA]int // offset in the arena
	full      bool
	reads     bool
	withdrawn int
	reclaimed int
}

func (b *fakeBook) Show(nla NLA, off, n int, _ fabric.VPID) bool {
	if b.full {
		return false
	}
	b.shown[nla] = off
	return true
}

func (b *fakeBook) Withdraw(nla NLA) bool {
	if _, ok := b.shown[nla]; !ok {
		panic("withdrawn without being shown")
	}
	if b.reads {
		return false
	}
	delete(b.shown, nla)
	b.withdrawn++
	return true
}

func (b *fakeBook) Reclaim([]byte) { b.reclaimed++; b.reads = false }

func TestAllocAndFree(t *testing.T) {
	u := New(3)
	b, err := u.Alloc(10000)
	if err != nil || len(b) != 10000 {
		t.Fatal(len(b), err)
	}
	if _, err := u.Alloc(ArenaSize); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("more than there is: %v", err)
	}
	u.Free(b)
	u.CloseArena()
	if _, err := u.Alloc(1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("after CloseArena: %v", err)
	}
	b[0] = 1 // still valid
}

func TestLentRegionsAreShown(t *testing.T) {
	u := New(0)
	book := &fakeBook{shown: make(map[NLA]int)}
	u.OpenBook(7, book)
	mem, err := u.Alloc(3 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := u.Arena()
	if err != nil {
		t.Fatal(err)
	}
	r, err := u.Register(1, mem[PageSize:], Read)
	if err != nil {
		t.Fatal(err)
	}
	nla, err := r.Lend(7)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := arena.Offset(mem[PageSize:])
	if off, ok := book.shown[nla]; !ok || off != want {
		t.Errorf("shown at %d, %v", off, ok)
	}
	book.reads = true
	if r.Revoke() {
		t.Error("revoked under a reader")
	}
	if _, err := r.Lend(8); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("lent again under a reader: %v", err)
	}
	book.reads = false
	if _, err := r.Lend(8); err != nil || len(book.shown) != 0 {
		t.Errorf("lent to another node: %v, shown %v", err, book.shown)
	}
	if _, err := r.LendAll(); err != nil || len(book.shown) != 0 {
		t.Errorf("lent to all: %v, shown %v", err, book.shown)
	}
	book.full = true
	if _, err := r.Lend(7); err != nil || len(book.shown) != 0 || !r.Revoke() {
		t.Errorf("without room in the book: %v", err)
	}
	book.full = false
	for _, tt := range []struct {
		name string
		mem  []byte
		a    Access
		to   fabric.NodeID
	}{{"plain memory", make([]byte, 10), Read, 7}, {"only writable", mem[:PageSize], Write, 7}, {"another node", mem[:PageSize], Read, 8}} {
		r, err := u.Register(1, tt.mem, tt.a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Lend(tt.to); err != nil || len(book.shown) != 0 {
			t.Errorf("%s: %v, shown %v", tt.name, err, book.shown)
		}
	}
	if _, err := r.Lend(7); err != nil || len(book.shown) != 1 {
		t.Fatal(err, book.shown)
	}
	u.CloseBook(7, book)
	book.reads = true
	begun := time.Now()
	if err := r.Close(); err != nil || book.reclaimed == 0 || len(book.shown) != 0 {
		t.Errorf("close under a reader: %v, reclaimed %d times, shown %v", err, book.reclaimed, book.shown)
	}
	if d := time.Since(begun); d < closeWait {
		t.Errorf("the reader was given %v", d)
	}
}
