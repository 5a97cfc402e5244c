//go:build amd64 || arm64

package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"exnet/internal/elffile"
)

// library is the library that is put into a program.
type library struct {
	path     string
	loads    []elffile.Segment
	size     uint64 // of its memory, whole pages
	relative []relocation
	symbols  map[string]uint64
}

// relocation says that the word at holds an address: the library's place and add.
type relocation struct{ at, add uint64 }

// errLibrary says that a library is not one without libc.
var errLibrary = errors.New("inject: not a library that can be put into a static program")

// Tags of the dynamic section and the kind of a relocation (elf.h).
const (
	dtRela   = 7
	dtRelaSz = 8
	dtRel    = 17
	dtPltRel = 20
	dtRelrSz = 35
	relaSize = 24
	symSize  = 24
)

// version is the interface's, in ds_free_version.
const version = 7

// Symbols of the library that inject uses.
const (
	symTrace   = "ds_free_trace"
	symBoot    = "ds_free_boot"
	symStart   = "ds_free_start"
	symEntry   = "ds_free_entry"
	symGo      = "ds_free_go"
	symPoll    = "ds_free_poll"
	symSignal  = "ds_free_signal"
	symVersion = "ds_free_version"
)

// maxLibrary bounds the library's memory.
const maxLibrary = 256 << 20

// readLibrary reads the library's file.
func readLibrary(path string) (*library, error) {
	f, err := elffile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &library{path: path, symbols: make(map[string]uint64)}
	if f.Machine != elffile.Machines[machine] || !f.Movable() {
		return nil, errLibrary
	}
	for _, s := range f.Segments() {
		switch {
		case s.Kind == elffile.PTTLS:
			return nil, fmt.Errorf("%w: it has variables for each thread", errLibrary)
		case s.Kind != elffile.PTLoad:
			continue
		case s.Flags&(elffile.PFWrite|elffile.PFExec) == elffile.PFWrite|elffile.PFExec || (s.Addr-s.Off)%pageSize != 0 ||
			s.Addr > maxLibrary || s.MemSize > maxLibrary || s.Size > s.MemSize || pageOf(s.Addr) < l.size:
			return nil, fmt.Errorf("%w: a segment at %#x", errLibrary, s.Addr)
		}
		l.loads = append(l.loads, s)
		l.size = pageUp(s.Addr + s.MemSize)
	}
	if err := l.readRelocations(f); err != nil {
		return nil, err
	}
	if err := l.readSymbols(f); err != nil {
		return nil, err
	}
	b, err := f.At(l.symbols[symVersion], 4)
	if err != nil || len(b) < 4 || binary.LittleEndian.Uint32(b) != version {
		return nil, fmt.Errorf("%w: another version", errLibrary)
	}
	return l, nil
}

// readRelocations reads the relocations: none but relative ones.
func (l *library) readRelocations(f *elffile.File) error {
	d, err := f.Dynamic()
	if err != nil {
		return err
	}
	for _, tag := range []uint64{dtRel, dtPltRel, dtRelrSz} {
		if d[tag] != 0 {
			return fmt.Errorf("%w: relocations (tag %d)", errLibrary, tag)
		}
	}
	if d[dtRelaSz] == 0 {
		return nil
	}
	b, err := f.At(d[dtRela], d[dtRelaSz])
	if err != nil || uint64(len(b)) < d[dtRelaSz] {
		return errors.Join(errLibrary, err)
	}
	for ; len(b) >= relaSize; b = b[relaSize:] {
		r := relocation{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[16:])}
		if binary.LittleEndian.Uint64(b[8:]) != rRelative || !l.isWritable(r.at) {
			return fmt.Errorf("%w: a relocation at %#x", errLibrary, r.at)
		}
		l.relative = append(l.relative, r)
	}
	return nil
}

// isWritable reports whether the file has a word at an address that may be written.
func (l *library) isWritable(at uint64) bool {
	return slices.ContainsFunc(l.loads, func(s elffile.Segment) bool {
		return s.Flags&elffile.PFWrite != 0 && at >= s.Addr && at-s.Addr+8 <= s.Size
	})
}

// readSymbols reads where the functions are that inject uses.
func (l *library) readSymbols(f *elffile.File) error {
	table, err := f.Section(".dynsym")
	if err != nil {
		return err
	}
	names, err := f.Section(".dynstr")
	if err != nil {
		return err
	}
	for ; len(table) >= symSize; table = table[symSize:] {
		at := binary.LittleEndian.Uint32(table)
		if uint64(at) >= uint64(len(names)) {
			continue
		}
		for _, want := range symbols {
			if n := names[at:]; len(n) > len(want) && string(n[:len(want)]) == want && n[len(want)] == 0 {
				l.symbols[want] = binary.LittleEndian.Uint64(table[8:])
			}
		}
	}
	if len(l.symbols) != len(symbols) {
		return fmt.Errorf("%w: %d of %d symbols", errLibrary, len(l.symbols), len(symbols))
	}
	return nil
}

func pageOf(n uint64) uint64 { return n &^ (pageSize - 1) }
func pageUp(n uint64) uint64 { return pageOf(n + pageSize - 1) }
