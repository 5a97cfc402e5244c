package pager

import (
	"os/exec"
	"strings"
	"testing"
)

// What the kernel promises of memory holds where the memory is elsewhere: each row of the table in
// docs/memory.md.
func TestPromises(t *testing.T) {
	needPaging(t)
	program := compile(t, "promises")
	for _, row := range []string{
		"wipe", "wipe-clone", "wipe-one", "wipe-keep", "wipe-late", "wipe-unmap", "dontfork",
		"lock", "lock-onfault", "uffd", "huge", "merge", "droppable", "grows",
		"guard-madvise", "guard-syscall", "guard-process", "guarded-rows", "guards-raced",
	} {
		t.Run(row, func(t *testing.T) {
			want, err := exec.CommandContext(t.Context(), program, row).Output()
			if err != nil {
				t.Skipf("this kernel: %v\n%s", err, want)
			}
			o := runPaged(t, setting{local: 2 * Smallest}, program, row)
			if !o.state.Success() || o.stdout != string(want) || o.stderr != "" || len(o.said) > 0 {
				t.Errorf("%v, paged\n%s%s%qby itself\n%s", o.state, o.stdout, o.stderr, o.said, want)
			}
			if o.counts.Moved == 0 {
				t.Errorf("no memory was elsewhere: %+v", o.counts)
			}
		})
	}
}

// Of each area in a smaps it is known what is promised.
func TestReadPromises(t *testing.T) {
	const text = `1000-3000 rw-p 00000000 00:00 0 
Size:                  8 kB
VmFlags: rd wr mr mw me ac wf 
3000-4000 rw-p 00000000 00:00 0                          [heap]
VmFlags: rd wr mr mw me dc ac sd
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0          [stack]
THPeligible:           0
VmFlags: rd wr mr mw me gd ac 
5000-6000 r--p 00000000 08:01 17                         /a-b: VmFlags
VmFlags: rd mr mw me wf dc
`
	p, err := readPromises(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at                 uint64
		known, empty, none bool
	}{
		{0x0fff, false, false, false}, {0x1000, true, true, false}, {0x2fff, true, true, false},
		{0x3000, true, false, true}, {0x4000, false, false, false}, {0x5000, true, true, true},
		{0x7ffffffde000, true, false, false},
	} {
		if k, e, n := p.known.has(c.at), p.empty.has(c.at), p.none.has(c.at); k != c.known || e != c.empty || n != c.none {
			t.Errorf("%#x: known %v, empty %v, none %v; want %+v", c.at, k, e, n, c)
		}
	}
	if _, err := readPromises(strings.NewReader("1000-x rw-p\n")); err == nil {
		t.Error("an address that is none is taken")
	}
}
