//go:build amd64 || arm64

package inject

import (
	"bytes"
	"encoding/binary"
	"io"

	"exnet/internal/elffile"
)

// The call by which a goroutine of package net waits for bytes: FD.Read of internal/poll finds
// nothing, and pollDesc.wait calls the runtime, which parks the goroutine. The library has it yield
// instead while an answer is likely to come soon, and read again: ds_free_poll.
const (
	pollWait    = "internal/poll.runtime_pollWait"
	pollCalling = "internal/poll.(*pollDesc).wait"
)

// The call by which Go handles a signal, with what the kernel says of the code that it interrupts.
// For a thread that is in the library, ds_free_signal says that it is in Syscall6.
const (
	signalHandler = "runtime.sigtrampgo"
	signalCalling = "runtime.sigtramp"
)

// maxCalling bounds the function that is searched for the call.
const maxCalling = 4096

// codeOf returns the instructions of a function that calls another; none: one of them is not there.
func codeOf(f *elffile.File, to, from function) []byte {
	if to.entry == 0 || from.end <= from.entry || from.end-from.entry > maxCalling {
		return nil
	}
	code, err := f.At(from.entry, from.end-from.entry)
	if err != nil {
		return nil
	}
	return code
}

// lineTable is what a program of Go says of its functions (runtime/symtab.go: pcHeader, functab,
// _func). A stripped program has it, too. Package debug/gosym reads all of it, which took 6 ms of a
// program's start where this takes 0.7.
type lineTable struct {
	f            *elffile.File
	off          int64  // of the table in the file
	text         uint64 // the functions' addresses begin there
	count        uint64 // of functions
	names, funcs int64  // where the names and the functions are in the table
	namesEnd     int64
}

// Bounds and form of the table since Go 1.20.
const (
	lineMagic    = 0xfffffff1
	maxFunctions = 1 << 24
	maxNames     = 64 << 20
)

// readHead reads the table's head. False: it is not there, or has another form.
func (t *lineTable) readHead() bool {
	_, off, size, ok := t.f.Place(".gopclntab")
	text, _, _, known := t.f.Place(".text")
	b := make([]byte, 72)
	if !ok || !known {
		return false
	}
	if _, err := t.f.ReadAt(b, int64(off)); err != nil {
		return false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	if binary.LittleEndian.Uint32(b) != lineMagic || b[7] != 8 || word(0) > maxFunctions ||
		word(3) > word(4) || word(4) > size || word(7) > size || word(4)-word(3) > maxNames {
		return false
	}
	t.off, t.text, t.count = int64(off), text, word(0)
	t.names, t.namesEnd, t.funcs = int64(word(3)), int64(word(4)), int64(word(7))
	return true
}

// function is where a function is.
type function struct{ entry, end uint64 }

// functionsOf finds functions of a program by their names.
func functionsOf(f *elffile.File, want ...string) map[string]function {
	t := lineTable{f: f}
	if !t.readHead() {
		return nil
	}
	return t.findFunctions(want...)
}

// findFunctions finds functions by their names.
func (t *lineTable) findFunctions(want ...string) map[string]function {
	names := make([]byte, t.namesEnd-t.names)
	if _, err := t.f.ReadAt(names, t.off+t.names); err != nil {
		return nil
	}
	byOffset := make(map[uint32]string, len(want))
	for _, name := range want {
		if i := bytes.Index(names, []byte("\x00"+name+"\x00")); i >= 0 {
			byOffset[uint32(i+1)] = name
		}
	}
	table, each := window{r: t.f}, window{r: t.f}
	found := make(map[string]function)
	for i := int64(0); i < int64(t.count) && len(found) < len(byOffset); i++ {
		at := t.off + t.funcs
		entry, off, end := table.wordAt(at+8*i), table.wordAt(at+8*i+4), table.wordAt(at+8*i+8)
		if name, ok := byOffset[each.wordAt(at+int64(off)+4)]; ok {
			found[name] = function{t.text + uint64(entry), t.text + uint64(end)}
		}
	}
	return found
}

// window reads words of a file in nearly ascending order.
type window struct {
	r    io.ReaderAt
	from int64
	b    []byte
	room [32 << 10]byte
}

// wordAt returns the word at off; 0: there is none.
func (w *window) wordAt(off int64) uint32 {
	if off < w.from || off+4 > w.from+int64(len(w.b)) {
		n, _ := w.r.ReadAt(w.room[:], off) // what there is
		w.from, w.b = off, w.room[:max(n, 0)]
		if n < 4 {
			return 0
		}
	}
	return binary.LittleEndian.Uint32(w.b[off-w.from:])
}
