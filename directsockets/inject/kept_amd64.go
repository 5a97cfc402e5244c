package inject

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"exnet/internal/checksum"
	"exnet/internal/elffile"
)

// Bounds of what is kept: so many files, of so many bytes each.
const (
	keptFiles = 64
	maxKept   = 1 << 20
)

// keptForm is the version of the files' form. The program that wrote a file is in its key, too.
const keptForm = 2

// keptAge is how long a program's file must have been as it is: two changes within a tick of the
// kernel's clock leave the same times.
const keptAge = 100 * time.Millisecond

// way is how a jump replaces a system call.
type way uint8

// Ways of a jump.
const (
	behind   way = iota // it begins at the system call
	before              // it begins before it
	besides             // a short one, and the one of five bytes is elsewhere
	goCall              // it replaces Go's Syscall6
	goPoll              // it is a call of runtime_pollWait, which is where the jump would be
	goSignal            // it is a call of sigtrampgo, likewise
)

// Sizes in a file: its key, and what it has of each place.
const (
	keySize  = 72
	placed   = 9  // where the system call is, the way, and where the jump of five bytes is
	keptTail = 8  // a sum of all that
	around   = 64 // bytes behind a place that have to be known
)

// kept is a file that has where the places of a program's text are. It is in a folder of this user,
// so the system calls of a program are looked for once. A file that anybody else can have written
// is not used, nor one of another program's file, of an earlier one, or of another exn-run; and
// each place is checked as if it had just been found, but for the jumps that might lead into it.
type kept struct {
	path string // "": nothing is kept
	key  []byte
}

// keptOf returns the file for a program in a folder; "": none.
func keptOf(dir string, p *program) kept {
	if dir == "" {
		return kept{}
	}
	self, err := os.Stat("/proc/self/exe")
	st, ok := p.info.Sys().(*syscall.Stat_t)
	if err != nil || !ok || time.Since(time.Unix(st.Ctim.Unix())) < keptAge {
		return kept{}
	}
	key := make([]byte, 0, keySize)
	for _, v := range []uint64{
		keptForm, st.Dev, st.Ino, uint64(st.Size), uint64(st.Mtim.Nano()), uint64(st.Ctim.Nano()), p.text.Addr,
		uint64(self.Size()), uint64(self.ModTime().UnixNano()),
	} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	return kept{filepath.Join(dir, fmt.Sprintf("places-%02d", checksum.Of(key)%keptFiles)), key}
}

// readSites returns the places of a program; nil: they have to be looked for.
func (k kept) readSites(f *elffile.File, p *program) []site {
	if k.path == "" {
		return nil
	}
	file, err := os.OpenFile(k.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || info.Size() > maxKept || info.Size() < keySize+keptTail {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return nil
	}
	b := make([]byte, info.Size())
	if n, err := file.Read(b); err != nil || n < len(b) {
		return nil
	}
	body, tail := b[:len(b)-keptTail], b[len(b)-keptTail:]
	if !slices.Equal(body[:keySize], k.key) || checksum.Of(body) != binary.LittleEndian.Uint64(tail) {
		return nil
	}
	if p.isGo {
		return goPlacesOf(body[keySize:], f, p)
	}
	return placesOf(body[keySize:], partsOf(body[keySize:], f, p))
}

// partsOf returns a text of the program's size. It has the program's bytes around the places, and
// zeros elsewhere.
func partsOf(b []byte, f *elffile.File, p *program) []byte {
	text := make([]byte, p.text.Size)
	for ; len(b) >= placed; b = b[placed:] {
		at, _, jump := placeIn(b)
		from, to := min(at, jump), min(max(at, jump)+around, len(text))
		if from < to {
			_, _ = f.ReadAt(text[from:to], int64(p.text.Off)+int64(from)) // else there is no system call
		}
	}
	return text
}

// placeIn reads a place.
func placeIn(b []byte) (at int, how way, jump int) {
	return int(binary.LittleEndian.Uint32(b)), way(b[4]), int(binary.LittleEndian.Uint32(b[5:]))
}

// goPlacesOf returns the places of Go that a file names, one of each way, nil if one of them is
// none.
func goPlacesOf(b []byte, f *elffile.File, p *program) (sites []site) {
	last := goCall - 1
	for ; len(b) >= placed; b = b[placed:] {
		off, how, jump := placeIn(b)
		at := p.text.Addr + uint64(off)
		code, err := f.At(at, uint64(len(goSyscall6)+jumpSize))
		calls := p.text.Addr + uint64(jump)
		switch {
		case err != nil || uint64(off) >= p.text.Size || how <= last:
			return nil
		case how == goCall && len(sites) == 0 && bytes.HasPrefix(code, goSyscall6):
			sites = append(sites, goSite(at, code[len(goSyscall6):]))
		case (how == goPoll || how == goSignal) && len(sites) > 0 && len(code) >= jumpSize && calledBy(code, at) == calls:
			sites = append(sites, site{at: at, calls: calls, to: map[way]string{goPoll: symPoll, goSignal: symSignal}[how]})
		default:
			return nil
		}
		last = how
	}
	if len(b) > 0 {
		return nil
	}
	return sites
}

// placesOf returns the places that a file names, nil if one of them is none.
func placesOf(b, text []byte) (sites []site) {
	none, used := make(marks, len(text)/64+1), make(marks, len(text)/64+1)
	for ; len(b) >= placed; b = b[placed:] {
		at, how, jump := placeIn(b)
		if at+jumpSize > len(text) || jump+jumpSize > len(text) || [2]byte(text[at:]) != [2]byte(systemCall) {
			return nil
		}
		c := candidate{at: at}
		var s site
		ok := false
		switch how {
		case behind:
			s, ok = c.jumpBehind(text, none)
		case before:
			i := jump
			for ; i < at; i += max(decodeInstruction(text[i:]).len, 1) {
				c.history = append(c.history, i)
			}
			s, ok = c.jumpBefore(text, none)
			ok = ok && i == at && s.at == uint64(jump)
		case besides:
			s, ok = c.jumpBeside(text, none, used, []space{{jump, jump + jumpSize}})
		}
		if !ok || !s.fits(used) || s.at+s.next > uint64(len(text)) || s.at+s.next < uint64(at+len(systemCall)) {
			return nil
		}
		s.markUsed(used)
		sites = append(sites, s)
	}
	if len(b) > 0 {
		return nil
	}
	return sites
}

// writeSites keeps the places of a text that begins at start. If it cannot, they are looked for
// again.
func (k kept) writeSites(sites []site, start uint64) {
	if k.path == "" || keySize+keptTail+placed*len(sites) > maxKept {
		return
	}
	b := slices.Clone(k.key)
	for _, s := range sites {
		at, how, jump := s.callPlace()
		b = binary.LittleEndian.AppendUint32(b, uint32(at-start))
		b = append(b, byte(how))
		b = binary.LittleEndian.AppendUint32(b, uint32(jump-start))
	}
	b = binary.LittleEndian.AppendUint64(b, checksum.Of(b))
	f, err := os.CreateTemp(filepath.Dir(k.path), "build-places-")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if failed := f.Close(); err == nil && failed == nil && os.Rename(f.Name(), k.path) == nil {
		return
	}
	_ = os.Remove(f.Name()) // it is of no use
}

// Known reports whether a program got the library by Launch with this folder before, and its file
// is the same.
func Known(f *elffile.File, dir string) bool {
	info, err := f.Stat()
	p := &program{info: info, isGo: f.IsGo()}
	return err == nil && p.findText(f) == nil && p.findKept(f, dir)
}

// findKept finds the places of a program that are kept, and false if there are none: they are to be
// kept then.
func (p *program) findKept(f *elffile.File, dir string) bool {
	k := keptOf(dir, p)
	if p.sites = k.readSites(f, p); p.sites == nil {
		p.toKeep = k
	} else if !p.isGo {
		p.relocateSites()
	}
	return p.sites != nil
}

// keepSites keeps the sites of a program, if they were not kept yet.
func (p *program) keepSites() {
	if p != nil {
		p.toKeep.writeSites(p.sites, p.text.Addr)
	}
}

// callPlace returns where the system call of a place is, how it is replaced, and where the jump of
// five bytes is.
func (s site) callPlace() (at uint64, how way, jump uint64) {
	switch {
	case s.to == symPoll:
		return s.at, goPoll, s.calls
	case s.to == symSignal:
		return s.at, goSignal, s.calls
	case s.ofGo:
		return s.at, goCall, s.at
	case s.short != nil:
		return s.at, besides, s.via
	case len(s.first) == 0:
		return s.at, behind, s.at
	}
	return s.at + s.next - uint64(len(systemCall)), before, s.at
}
