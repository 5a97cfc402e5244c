package pager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"exnet/internal/longtest"
	"exnet/memory/pager/uffd"
)

// A program that uses memory in every way at random finds in it what it has put there.
func TestExercise(t *testing.T) {
	needPaging(t)
	program := compile(t, "exercise")
	for seed := 1; seed <= 2; seed++ {
		o := runPaged(t, setting{local: Smallest}, program, strconv.Itoa(seed), "1", "2000", "500")
		if o.clean(t); o.stdout != "ok\n" {
			t.Errorf("seed %d: %q", seed, o.stdout)
		}
	}
}

// The same with threads, none of which moves its memory.
func TestExerciseThreads(t *testing.T) {
	needPaging(t)
	program := compile(t, "exercise")
	o := runPaged(t, setting{local: 2 * Smallest}, program, "3", "3", "1500", "400", "0x2")
	if o.clean(t); o.stdout != "ok\n" {
		t.Errorf("%q", o.stdout)
	}
}

// Programs that know nothing of it write the same.
func TestPythonPaged(t *testing.T) {
	same(t, 8<<20, "python3", "-c", `
import hashlib, os, subprocess
b = bytearray()
for i in range(400):
    b += hashlib.sha256(b'%d' % i).digest() * 2048
print(hashlib.sha256(b).hexdigest())
pid = os.fork()
if pid == 0:
    b[5] ^= 1
    print(hashlib.sha256(b).hexdigest(), flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
for i in range(0, len(b), 4096): b[i] ^= 255
print(hashlib.sha256(b).hexdigest(), subprocess.run(['sh', '-c', 'echo sub'], capture_output=True).stdout)
`)
}

func TestSortPaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(lines(300000)), 0o600); err != nil {
		t.Fatal(err)
	}
	same(t, 4<<20, "sort", "-S", "100M", path)
}

func TestCompilerPaged(t *testing.T) {
	longtest.Skip(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "many.c")
	var text []byte
	for i := range 500 {
		text = fmt.Appendf(text, "int f%d(int x) { for (int i = 0; i < x; i++) x ^= i * %d + (x >> 3); return x; }\n", i, i)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	same(t, 8<<20, "cc", "-O1", "-S", "-o", "-", path)
}

// failing is a store that is lost after some accesses.
type failing struct {
	Store
	reads, writes atomic.Int64
}

var errGone = errors.New("the lender has ended")

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.reads.Add(-1) < 0 {
		return 0, errGone
	}
	return f.Store.ReadAt(p, off)
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if f.writes.Add(-1) < 0 {
		return 0, errGone
	}
	return f.Store.WriteAt(p, off)
}

// A program whose memory is lost gets SIGBUS when it touches that, and one line says why.
func TestStoreLost(t *testing.T) {
	needPaging(t)
	program := compile(t, "rows")
	s := &failing{Store: Memory(1 << 26)}
	s.reads.Store(20)
	s.writes.Store(1 << 40)
	o := runPaged(t, setting{local: Smallest, store: s, size: 1 << 26}, program, "16")
	ws, ok := o.state.Sys().(syscall.WaitStatus)
	if !ok || ws.Signal() != syscall.SIGBUS || len(o.said) != 1 || !hasText(o.said, errGone.Error()) {
		t.Errorf("%v %q\n%s", o.state, o.said, o.stderr)
	}
}

// A store that takes nothing any more leaves what is here here.
func TestStoreTakesNothing(t *testing.T) {
	needPaging(t)
	program := compile(t, "rows")
	s := &failing{Store: Memory(1 << 26)}
	s.reads.Store(1 << 40)
	s.writes.Store(0)
	o := runPaged(t, setting{local: Smallest, store: s, size: 1 << 26}, program, "16")
	if !o.state.Success() || o.stdout != "ok\n" || len(o.said) != 1 || !hasText(o.said, "the store is lost") {
		t.Errorf("%v %q %q\n%s", o.state, o.stdout, o.said, o.stderr)
	}
}

// A program that wants more than there is is killed, whichever of the processes wants it.
func TestStoreFull(t *testing.T) {
	needPaging(t)
	program := compile(t, "rows")
	for _, argv := range [][]string{{program, "16", "forever"}, {"sh", "-c", program + " 16 forever; echo lives"}} {
		var full atomic.Int64
		o := runPaged(t, setting{local: Smallest, store: Memory(1 << 20), size: 1 << 20, full: func() { full.Add(1) }}, argv...)
		ws, ok := o.state.Sys().(syscall.WaitStatus)
		if !ok || ws.Signal() != syscall.SIGKILL || o.stdout != "" || full.Load() != 1 {
			t.Errorf("%q: %v %q: it was said %d times\n%s", argv, o.state, o.stdout, full.Load(), o.stderr)
		}
	}
}

// reads counts the reads of a store, and those of one page.
type reads struct {
	Store
	all, single int
}

func (r *reads) ReadAt(p []byte, off int64) (int, error) {
	if r.all++; len(p) == uffd.PageSize {
		r.single++
	}
	return r.Store.ReadAt(p, off)
}

// Pages in a row come together with the one that the program waits for: nearly none comes alone.
func TestRowTogether(t *testing.T) {
	needPaging(t)
	s := &reads{Store: Memory(1 << 26)}
	o := runPaged(t, setting{local: 8 << 20, store: s, size: 1 << 26}, compile(t, "rows"), "32", "forwards")
	if o.clean(t); s.single > s.all/3 {
		t.Errorf("%d of %d reads are of one page: %+v", s.single, s.all, o.counts)
	}
}

// What a process shared with a child leaves when the child has ended, and what a child shared with
// its parent when that has.
func TestSharedSinceFork(t *testing.T) {
	needPaging(t)
	program := compile(t, "forks")
	for _, who := range []string{"parent", "child"} {
		o := runPaged(t, setting{local: 4 << 20}, program, who, "16", "5")
		if o.stdout != "ok\n" || o.stderr != "" || len(o.said) > 0 || o.counts.Owned == 0 {
			t.Errorf("%s: %v %q %q %+v\n%s", who, o.state, o.stdout, o.said, o.counts, o.stderr)
		}
	}
}

// A share holds: the pages here are not more than it and what one step takes.
func TestShare(t *testing.T) {
	needPaging(t)
	program := compile(t, "rows")
	const local = 4 << 20
	o := runPaged(t, setting{local: local}, program, "32")
	if o.clean(t); o.stdout != "ok\n" {
		t.Errorf("%q", o.stdout)
	}
	if c := o.counts; c.Moved < (32<<20-2*local)/uffd.PageSize {
		t.Errorf("%d pages have left: %+v", c.Moved, c)
	}
}

// A program of which no more is used than its share is not slowed down: no page is paged.
func TestSmallProgram(t *testing.T) {
	needPaging(t)
	o := runPaged(t, setting{local: 256 << 20}, compile(t, "rows"), "4")
	if !o.state.Success() || o.counts.Faults != 0 || o.counts.Adopted != 1 {
		t.Errorf("%v %+v", o.state, o.counts)
	}
}
