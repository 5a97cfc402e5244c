package elffile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// Machine is what a file is for: e_machine and the bits of an address.
type Machine struct {
	ID   uint16
	Bits int
}

// Machines are those that this module knows, by Go's names (elf.h).
var Machines = map[string]Machine{
	"amd64":   {62, 64},
	"arm64":   {183, 64},
	"riscv64": {243, 64},
	"ppc64le": {21, 64},
	"s390x":   {22, 64},
	"386":     {3, 32},
	"arm":     {40, 32},
}

// ErrFormat says that a file is not an ELF file, or a damaged one.
var ErrFormat = errors.New("elffile: not an ELF file")

// File is an open file.
type File struct {
	Machine
	f        *os.File
	order    binary.ByteOrder
	head     header
	segments []Segment
	sections *sections // nil: not read yet
}

// header is the part of the file's header that is used.
type header struct {
	kind                       uint16
	entry                      uint64
	phoff, shoff               uint64
	phentsize, phnum           int
	shentsize, shnum, shstrndx int
}

// Segment is a program header.
type Segment struct {
	Kind, Flags     uint32
	Off, Addr, Size uint64 // Size bytes of the file
	MemSize         uint64 // in memory: what the file does not have is zero
}

// Kinds and flags of segments (elf.h).
const (
	PTLoad = 1
	PTTLS  = 7

	PFExec  = 1
	PFWrite = 2
	PFRead  = 4

	ptDynamic = 2
	ptInterp  = 3
)

// Tags of the dynamic section, and the kind of a file that may be loaded anywhere (elf.h).
const (
	dtNull   = 0
	dtNeeded = 1
	dtStrtab = 5

	etDyn = 3
)

// maxRead bounds a read; maxName the name of a library or a dynamic linker.
const (
	maxRead = 4 << 20
	maxName = 4096
)

// Open opens an ELF file and reads its headers. The error wraps ErrFormat if it is none.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // not to wait where it is a FIFO
	if err != nil {
		return nil, err
	}
	e := &File{f: f}
	if err := e.readHeaders(); err != nil {
		f.Close()
		return nil, err
	}
	return e, nil
}

// Close closes the file.
func (e *File) Close() error { return e.f.Close() }

func (e *File) readHeaders() error {
	ident, err := e.readAt(0, 16)
	if err != nil || string(ident[:4]) != "\x7fELF" {
		return ErrFormat
	}
	switch ident[4] {
	case 1:
		e.Bits = 32
	case 2:
		e.Bits = 64
	default:
		return ErrFormat
	}
	switch ident[5] {
	case 1:
		e.order = binary.LittleEndian
	case 2:
		e.order = binary.BigEndian
	default:
		return ErrFormat
	}
	if err := e.readHead(); err != nil {
		return err
	}
	least := map[int]int{32: 32, 64: 56}[e.Bits]
	if e.head.phnum > 0 && e.head.phentsize < least {
		return fmt.Errorf("%w: program headers of %d bytes", ErrFormat, e.head.phentsize)
	}
	b, err := e.readAt(e.head.phoff, uint64(e.head.phnum*e.head.phentsize))
	if err != nil {
		return err
	}
	for i := range e.head.phnum {
		e.segments = append(e.segments, e.parseSegment(b[i*e.head.phentsize:]))
	}
	return nil
}

// readHead reads the header after e_ident.
func (e *File) readHead() error {
	size := map[int]uint64{32: 52, 64: 64}[e.Bits]
	b, err := e.readAt(0, size)
	if err != nil {
		return err
	}
	e.head.kind, e.ID = e.order.Uint16(b[16:]), e.order.Uint16(b[18:])
	e.head.entry = e.parseWord(b[24:])
	rest := b[40:] // after e_flags
	if e.Bits == 64 {
		e.head.phoff, e.head.shoff = e.order.Uint64(b[32:]), e.order.Uint64(b[40:])
		rest = b[52:]
	} else {
		e.head.phoff, e.head.shoff = uint64(e.order.Uint32(b[28:])), uint64(e.order.Uint32(b[32:]))
	}
	for i, to := range []*int{nil, &e.head.phentsize, &e.head.phnum, &e.head.shentsize, &e.head.shnum, &e.head.shstrndx} {
		if to != nil {
			*to = int(e.order.Uint16(rest[2*i:]))
		}
	}
	return nil
}

func (e *File) parseSegment(b []byte) Segment {
	if e.Bits == 64 {
		return Segment{Kind: e.order.Uint32(b), Flags: e.order.Uint32(b[4:]), Off: e.order.Uint64(b[8:]),
			Addr: e.order.Uint64(b[16:]), Size: e.order.Uint64(b[32:]), MemSize: e.order.Uint64(b[40:])}
	}
	return Segment{Kind: e.order.Uint32(b), Flags: e.order.Uint32(b[24:]), Off: uint64(e.order.Uint32(b[4:])),
		Addr: uint64(e.order.Uint32(b[8:])), Size: uint64(e.order.Uint32(b[16:])), MemSize: uint64(e.order.Uint32(b[20:]))}
}

// Entry returns the address of the first instruction.
func (e *File) Entry() uint64 { return e.head.entry }

// Movable reports whether the file may be loaded anywhere: its addresses begin at 0 then.
func (e *File) Movable() bool { return e.head.kind == etDyn }

// Packed reports whether UPX has packed the file: its code unpacks the program when it starts, and
// nothing else in it is the program's.
func (e *File) Packed() bool {
	const magicOff, magic = 4, "UPX!" // behind the program headers
	b, err := e.readAt(e.head.phoff+uint64(e.head.phnum*e.head.phentsize)+magicOff, uint64(len(magic)))
	return err == nil && string(b) == magic
}

// Segments returns the program headers.
func (e *File) Segments() []Segment { return e.segments }

// ReadAt reads the file as io.ReaderAt has it.
func (e *File) ReadAt(b []byte, off int64) (int, error) { return e.f.ReadAt(b, off) }

// Stat returns what os.File's does.
func (e *File) Stat() (os.FileInfo, error) { return e.f.Stat() }

// Dynamic returns the value of each tag of the dynamic section.
func (e *File) Dynamic() (map[uint64]uint64, error) {
	values := make(map[uint64]uint64)
	err := e.eachDynamic(func(tag, value uint64) { values[tag] = value })
	return values, err
}

// eachDynamic calls f for each entry of the dynamic section.
func (e *File) eachDynamic(f func(tag, value uint64)) error {
	for _, s := range e.segments {
		if s.Kind != ptDynamic {
			continue
		}
		b, err := e.readAt(s.Off, s.Size)
		if err != nil {
			return err
		}
		for word := e.Bits / 8; len(b) >= 2*word && e.parseWord(b) != dtNull; b = b[2*word:] {
			f(e.parseWord(b), e.parseWord(b[word:]))
		}
	}
	return nil
}

// Interpreter returns the dynamic linker that the file names; "": none.
func (e *File) Interpreter() string {
	for _, s := range e.segments {
		if s.Kind == ptInterp && s.Size <= maxName {
			if b, err := e.readAt(s.Off, s.Size); err == nil {
				return strings.TrimRight(string(b), "\x00")
			}
		}
	}
	return ""
}

// Needed returns the names of the libraries that the file is linked with.
func (e *File) Needed() ([]string, error) {
	var names []uint64
	var table uint64
	err := e.eachDynamic(func(tag, value uint64) {
		switch tag {
		case dtNeeded:
			names = append(names, value)
		case dtStrtab:
			table = value
		}
	})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, off := range names {
		b, err := e.At(table+off, maxName)
		if err != nil {
			return nil, err
		}
		name, _, _ := bytes.Cut(b, []byte{0})
		all = append(all, string(name))
	}
	return all, nil
}

// parseWord returns an address or a number of that size.
func (e *File) parseWord(b []byte) uint64 {
	if e.Bits == 64 {
		return e.order.Uint64(b)
	}
	return uint64(e.order.Uint32(b))
}

// At returns up to n bytes from an address on, as the file has them.
func (e *File) At(addr, n uint64) ([]byte, error) {
	for _, s := range e.segments {
		if s.Kind == PTLoad && addr-s.Addr < s.Size {
			return e.readAt(s.Off+(addr-s.Addr), min(n, s.Size-(addr-s.Addr)))
		}
	}
	return nil, fmt.Errorf("%w: nothing at address %#x", ErrFormat, addr)
}

// readAt returns n bytes at off.
func (e *File) readAt(off, n uint64) ([]byte, error) {
	if n > maxRead || off > 1<<62 {
		return nil, fmt.Errorf("%w: %d bytes at %d", ErrFormat, n, off)
	}
	b := make([]byte, n)
	if got, err := e.f.ReadAt(b, int64(off)); got < len(b) {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: it ends at %d", ErrFormat, off+uint64(got))
		}
		return nil, err
	}
	return b, nil
}
