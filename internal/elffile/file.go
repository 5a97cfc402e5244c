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
	segments []segment
}

// header is the part of the file's header that is used.
type header struct {
	phoff, shoff               uint64
	phentsize, phnum           int
	shentsize, shnum, shstrndx int
}

// segment is a program header.
type segment struct {
	kind, flags     uint32
	off, addr, size uint64
}

// Kinds and flags of segments, and tags of the dynamic section (elf.h).
const (
	ptLoad    = 1
	ptDynamic = 2
	ptInterp  = 3

	pfExec  = 1
	pfWrite = 2

	dtNull   = 0
	dtNeeded = 1
	dtStrtab = 5
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
	ident, err := e.read(0, 16)
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
	b, err := e.read(e.head.phoff, uint64(e.head.phnum*e.head.phentsize))
	if err != nil {
		return err
	}
	for i := range e.head.phnum {
		e.segments = append(e.segments, e.segment(b[i*e.head.phentsize:]))
	}
	return nil
}

// readHead reads the header after e_ident.
func (e *File) readHead() error {
	size := map[int]uint64{32: 52, 64: 64}[e.Bits]
	b, err := e.read(0, size)
	if err != nil {
		return err
	}
	e.ID = e.order.Uint16(b[18:])
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

func (e *File) segment(b []byte) segment {
	if e.Bits == 64 {
		return segment{kind: e.order.Uint32(b), flags: e.order.Uint32(b[4:]),
			off: e.order.Uint64(b[8:]), addr: e.order.Uint64(b[16:]), size: e.order.Uint64(b[32:])}
	}
	return segment{kind: e.order.Uint32(b), flags: e.order.Uint32(b[24:]),
		off: uint64(e.order.Uint32(b[4:])), addr: uint64(e.order.Uint32(b[8:])), size: uint64(e.order.Uint32(b[16:]))}
}

// Interpreter returns the dynamic linker that the file names; "": none.
func (e *File) Interpreter() string {
	for _, s := range e.segments {
		if s.kind == ptInterp && s.size <= maxName {
			if b, err := e.read(s.off, s.size); err == nil {
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
	for _, s := range e.segments {
		if s.kind != ptDynamic {
			continue
		}
		b, err := e.read(s.off, s.size)
		if err != nil {
			return nil, err
		}
		for word := e.Bits / 8; len(b) >= 2*word && e.word(b) != dtNull; b = b[2*word:] {
			switch tag, value := e.word(b), e.word(b[word:]); tag {
			case dtNeeded:
				names = append(names, value)
			case dtStrtab:
				table = value
			}
		}
	}
	var all []string
	for _, off := range names {
		b, err := e.at(table+off, maxName)
		if err != nil {
			return nil, err
		}
		name, _, _ := bytes.Cut(b, []byte{0})
		all = append(all, string(name))
	}
	return all, nil
}

// word returns an address or a number of that size.
func (e *File) word(b []byte) uint64 {
	if e.Bits == 64 {
		return e.order.Uint64(b)
	}
	return uint64(e.order.Uint32(b))
}

// at returns up to n bytes from an address on, as the file has them.
func (e *File) at(addr, n uint64) ([]byte, error) {
	for _, s := range e.segments {
		if s.kind == ptLoad && addr-s.addr < s.size {
			return e.read(s.off+(addr-s.addr), min(n, s.size-(addr-s.addr)))
		}
	}
	return nil, fmt.Errorf("%w: nothing at address %#x", ErrFormat, addr)
}

// read returns n bytes at off.
func (e *File) read(off, n uint64) ([]byte, error) {
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
