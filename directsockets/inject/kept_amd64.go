package inject

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"exnet/internal/checksum"
)

// minKept is the size of a text that is worth keeping what was found in it: a smaller one is read
// in the time that the file would take.
const minKept = 64 << 10

// Bounds of what is kept: so many files, of so many bytes each.
const (
	keptFiles = 64
	maxKept   = 1 << 20
)

// keptForm is the version of the files' form. The program that wrote a file is in its key, too.
const keptForm = 1

// way is how a jump replaces a system call.
type way uint8

// Ways of a jump.
const (
	behind  way = iota // it begins at the system call
	before             // it begins before it
	besides            // a short one, and the one of five bytes is elsewhere
)

// Sizes in a file: its key, and what it has of each place.
const (
	keySize  = 48
	placed   = 9 // where the system call is, the way, and where the jump of five bytes is
	keptTail = 8 // a sum of all that
)

// kept is a file that has where the places of a text are. It is in a folder of this user, so the
// system calls of a large program are looked for once. A file that anybody else can have written is
// not used, nor one of another text or of another exn-run; and each place is checked as if it had
// just been found, but for the jumps that might lead into it.
type kept struct {
	path string // "": nothing is kept
	key  []byte
}

// keptOf returns the file for a text in a folder; "": none.
func keptOf(dir string, text []byte, p *program) kept {
	self, err := os.Stat("/proc/self/exe")
	if dir == "" || len(text) < minKept || err != nil {
		return kept{}
	}
	sum := checksum.Of(text)
	key := make([]byte, 0, keySize)
	for _, v := range []uint64{keptForm, sum, uint64(len(text)), p.text.Addr, uint64(self.Size()), uint64(self.ModTime().UnixNano())} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	return kept{filepath.Join(dir, fmt.Sprintf("places-%02d", sum%keptFiles)), key}
}

// read returns the places; nil: they have to be looked for.
func (k kept) read(text []byte) []site {
	if k.path == "" {
		return nil
	}
	f, err := os.OpenFile(k.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || info.Size() > maxKept || info.Size() < keySize+keptTail {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return nil
	}
	b := make([]byte, info.Size())
	if n, err := f.Read(b); err != nil || n < len(b) {
		return nil
	}
	body, tail := b[:len(b)-keptTail], b[len(b)-keptTail:]
	if !slices.Equal(body[:keySize], k.key) || checksum.Of(body) != binary.LittleEndian.Uint64(tail) {
		return nil
	}
	return placesOf(body[keySize:], text)
}

// placesOf returns the places that a file names, nil if one of them is none.
func placesOf(b, text []byte) (sites []site) {
	none, used := make(marks, len(text)/64+1), make(marks, len(text)/64+1)
	for ; len(b) >= placed; b = b[placed:] {
		at, how, jump := int(binary.LittleEndian.Uint32(b)), way(b[4]), int(binary.LittleEndian.Uint32(b[5:]))
		if at+jumpSize > len(text) || jump+jumpSize > len(text) || [2]byte(text[at:]) != [2]byte(systemCall) {
			return nil
		}
		c := candidate{at: at}
		var s site
		ok := false
		switch how {
		case behind:
			s, ok = c.behind(text, none)
		case before:
			i := jump
			for ; i < at; i += max(decode(text[i:]).len, 1) {
				c.history = append(c.history, i)
			}
			s, ok = c.before(text, none)
			ok = ok && i == at && s.at == uint64(jump)
		case besides:
			s, ok = c.besides(text, none, used, []space{{jump, jump + jumpSize}})
		}
		if !ok || !s.fits(used) || s.at+s.next > uint64(len(text)) || s.at+s.next < uint64(at+len(systemCall)) {
			return nil
		}
		s.use(used)
		sites = append(sites, s)
	}
	if len(b) > 0 {
		return nil
	}
	return sites
}

// write keeps the places of a text that begins at start. If it cannot, they are looked for again.
func (k kept) write(sites []site, start uint64) {
	if k.path == "" || keySize+keptTail+placed*len(sites) > maxKept {
		return
	}
	b := slices.Clone(k.key)
	for _, s := range sites {
		at, how, jump := s.place()
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

// keep keeps the sites of a program, if they are worth it and were not kept yet.
func (p *program) keep() {
	if p != nil {
		p.toKeep.write(p.sites, p.text.Addr)
	}
}

// place returns where the system call of a place is, how it is replaced, and where the jump of five
// bytes is.
func (s site) place() (at uint64, how way, jump uint64) {
	switch {
	case s.short != nil:
		return s.at, besides, s.via
	case len(s.first) == 0:
		return s.at, behind, s.at
	}
	return s.at + s.next - uint64(len(systemCall)), before, s.at
}
