//go:build amd64 || arm64

package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"exnet/internal/elffile"
)

// reserveNear finds memory near the text.
func (t *tracer) reserveNear(text, size uint64) (uint64, error) {
	for _, want := range placesNear(text, size) {
		at, err := t.systemCall(unix.SYS_MMAP, pageOf(want), size, unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uint64(0), 0)
		if !errors.Is(err, unix.EEXIST) {
			return at, wrapError("reserving memory", err)
		}
	}
	return 0, errFar
}

func wrapError(what string, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// mapLibrary maps the library's segments at their place, and relocates them.
func (t *tracer) mapLibrary(l *library, at uint64) error {
	name := append([]byte(l.path), 0)
	below := pageOf(t.frame) - pageUp(uint64(len(name))) // the stack's, which nobody uses yet
	if err := t.writeMemory(below, name); err != nil {
		return err
	}
	fd, err := t.systemCall(unix.SYS_OPENAT, unix.AT_FDCWD&(1<<64-1), below, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrapError("opening "+l.path, err)
	}
	for _, s := range l.loads {
		if err := t.loadSegment(s, at, fd); err != nil {
			_, _ = t.systemCall(unix.SYS_CLOSE, fd)
			return wrapError("mapping "+l.path, err)
		}
	}
	if _, err := t.systemCall(unix.SYS_CLOSE, fd); err != nil {
		return err
	}
	return l.relocateData(at, t.writeMemory)
}

// loadSegment maps a segment of the library: what the file has, and then zeros.
func (t *tracer) loadSegment(s elffile.Segment, at, fd uint64) error {
	start, file, end := at+pageOf(s.Addr), pageUp(s.Addr%pageSize+s.Size), pageUp(s.Addr%pageSize+s.MemSize)
	prot := protectionOf(s)
	if s.Size == 0 {
		file = 0
	}
	if file > 0 {
		if _, err := t.systemCall(unix.SYS_MMAP, start, file, prot, unix.MAP_PRIVATE|unix.MAP_FIXED, fd, pageOf(s.Off)); err != nil {
			return err
		}
		if n := file - (s.Addr%pageSize + s.Size); s.MemSize > s.Size && n > 0 {
			if err := t.writeMemory(at+s.Addr+s.Size, make([]byte, n)); err != nil {
				return err
			}
		}
	}
	if end == file {
		return nil
	}
	_, err := t.systemCall(unix.SYS_MMAP, start+file, end-file, prot, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	return err
}

// protectionOf returns how a segment is mapped.
func protectionOf(s elffile.Segment) (prot uint64) {
	for flag, p := range map[uint32]uint64{elffile.PFRead: unix.PROT_READ, elffile.PFWrite: unix.PROT_WRITE, elffile.PFExec: unix.PROT_EXEC} {
		if s.Flags&flag != 0 {
			prot |= p
		}
	}
	return prot
}

// loadCopy does as mapLibrary for a program that does not have the library's file.
func (t *tracer) loadCopy(l *library, at uint64) error {
	for _, s := range l.loads {
		b, err := l.segmentContents(s, at)
		if err == nil {
			b = append(make([]byte, s.Addr%pageSize), b...)
			err = t.mapFilled(at+pageOf(s.Addr), pageUp(s.Addr%pageSize+s.MemSize), b, protectionOf(s))
		}
		if err != nil {
			return wrapError("mapping a copy of "+l.path, err)
		}
	}
	return nil
}

// segmentContents returns what the file has of a segment of the library that is mapped at an
// address.
func (l *library) segmentContents(s elffile.Segment, at uint64) ([]byte, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, s.Size)
	if _, err := f.ReadAt(b, int64(s.Off)); err != nil && s.Size > 0 {
		return nil, err
	}
	for _, r := range l.relative {
		if r.at-s.Addr < s.Size {
			binary.LittleEndian.PutUint64(b[r.at-s.Addr:], at+r.add)
		}
	}
	return b, nil
}

// relocateData writes the addresses in the library's data.
func (l *library) relocateData(at uint64, write func(uint64, []byte) error) error {
	for _, s := range l.loads {
		if s.Flags&elffile.PFWrite == 0 || s.Size == 0 {
			continue
		}
		b, err := l.segmentContents(s, at)
		if err == nil {
			err = write(at+s.Addr, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// toEnd has the program run code that ends by restoring its registers, and returns the library's
// result, which the code has written.
func (t *tracer) toEnd(end uint64) error {
	var r registers
	for {
		if _, err := t.continueUntilStop(unix.PTRACE_SYSCALL); err != nil {
			return err
		}
		if err := getRegisters(t.pid, &r); err != nil {
			return t.goneError(err)
		}
		if nextOf(&r) == end {
			break
		}
		step("commits")
	}
	if _, err := t.continueUntilStop(unix.PTRACE_SYSCALL); err != nil { // the program is where it was
		return err
	}
	var b [8]byte
	if err := t.readMemory(t.frame+resultOff, b[:]); err != nil {
		return err
	}
	return startError(unix.Errno(-binary.LittleEndian.Uint64(b[:])))
}

// mapFilled maps anonymous memory with contents, which may be executable when they are written.
func (t *tracer) mapFilled(at, size uint64, b []byte, prot uint64) error {
	_, err := t.systemCall(unix.SYS_MMAP, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_ANONYMOUS, ^uint64(0), 0)
	if err == nil {
		err = t.writeMemory(at, b)
	}
	if err == nil && prot != unix.PROT_READ|unix.PROT_WRITE {
		_, err = t.systemCall(unix.SYS_MPROTECT, at, size, prot)
	}
	return err
}
