package elffile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrNotGo says that the go command has not built a file.
var ErrNotGo = errors.New("elffile: not a Go program")

// The build information of Go (debug/buildinfo): a header of 32 bytes at a multiple of 16, and
// after it two strings, the version of Go and the modules. Before Go 1.18 the header had two
// pointers to strings instead.
const (
	buildSection = ".go.buildinfo"
	buildMagic   = "\xff Go buildinf:"
	buildAlign   = 16
	buildHead    = 32

	pointerOff = 14 // size of a pointer
	flagsOff   = 15
	bigEndian  = 1 // flags
	inline     = 2

	frameLen = 16 // what precedes and follows the modules
	maxBuild = 1 << 20
)

// Modules returns the paths of the modules that a Go program was built from, its own
// first, if it says. The error wraps ErrNotGo if it is no Go program.
func (e *File) Modules() ([]string, error) {
	b, err := e.buildInfo()
	if err != nil {
		return nil, err
	}
	var text string
	if b[flagsOff]&inline != 0 {
		var ok bool
		rest := b[buildHead:]
		if _, rest, ok = cutCounted(rest); ok {
			text, _, ok = cutCounted(rest)
		}
		if !ok {
			return nil, fmt.Errorf("%w: its build information is cut short", ErrNotGo)
		}
	} else if text, err = e.pointedModules(b); err != nil {
		return nil, err
	}
	if n := len(text); n < 2*frameLen+1 || text[n-frameLen-1] != '\n' {
		return nil, nil // none are said
	}
	var paths []string
	for line := range strings.Lines(text[frameLen : len(text)-frameLen]) {
		if f := strings.Split(line, "\t"); len(f) > 1 && (f[0] == "mod" || f[0] == "dep") {
			paths = append(paths, f[1])
		}
	}
	return paths, nil
}

// IsGo reports whether it is a Go program. It has a line table, by which a build without build
// information (esbuild's) is known; a file without sections has build information alone.
func (e *File) IsGo() bool {
	for _, table := range []string{".gopclntab", ".data.rel.ro.gopclntab"} { // the second of a PIE
		if _, _, _, ok := e.Place(table); ok {
			return true
		}
	}
	_, err := e.Modules()
	return err == nil
}

// buildInfo returns the build information from its header on.
func (e *File) buildInfo() ([]byte, error) {
	off, size := e.buildPlace()
	b, err := e.readAt(off, min(size, maxBuild))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotGo, err)
	}
	for i := 0; i+buildHead <= len(b); i += buildAlign {
		if bytes.HasPrefix(b[i:], []byte(buildMagic)) {
			return b[i:], nil
		}
	}
	return nil, ErrNotGo
}

// buildPlace returns where the build information is: its section or, without sections, the first
// segment of data.
func (e *File) buildPlace() (off, size uint64) {
	if _, off, size, ok := e.Place(buildSection); ok {
		return off, size
	}
	for _, s := range e.segments {
		if s.Kind == PTLoad && s.Flags&(PFExec|PFWrite) == PFWrite {
			return s.Off, s.Size
		}
	}
	return 0, 0
}

// cutCounted cuts a string that follows its length off b.
func cutCounted(b []byte) (s string, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return "", nil, false
	}
	return string(b[used:][:n]), b[used:][n:], true
}

// pointedModules returns the modules of a program that was built before Go 1.18.
func (e *File) pointedModules(b []byte) (string, error) {
	size := uint64(b[pointerOff])
	var order binary.ByteOrder = binary.LittleEndian
	if b[flagsOff]&bigEndian != 0 {
		order = binary.BigEndian
	}
	if size != 4 && size != 8 {
		return "", fmt.Errorf("%w: pointers of %d bytes", ErrNotGo, size)
	}
	pointer := func(b []byte) uint64 {
		if size == 4 {
			return uint64(order.Uint32(b))
		}
		return order.Uint64(b)
	}
	head, err := e.At(pointer(b[16+size:]), 2*size)
	if err != nil || uint64(len(head)) < 2*size {
		return "", fmt.Errorf("%w: no modules in it", ErrNotGo)
	}
	n := pointer(head[size:])
	text, err := e.At(pointer(head), n)
	if n == 0 || err != nil {
		return "", nil
	}
	return string(text), nil
}
