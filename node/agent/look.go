package agent

import (
	"bytes"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"exnet/internal/elffile"
)

// sight is what is seen of a process.
type sight struct {
	asks  bool
	image image
	// static: it is another program than before, which makes its own system calls and asks by its
	// environment.
	static bool
}

// image identifies what a process runs. It changes with execve, and with the process that has a
// number.
type image struct{ device, inode, start uint64 }

// readProcess reads the process at a path in /proc: whether it asks for direct sockets, by its
// environment, or as it has loaded the library. Programs that write their titles over it, as
// redis does, show no environment.
func readProcess(dir string, before image) (s sight) {
	s.image = imageAt(dir)
	for v := range bytes.SplitSeq(readProc(filepath.Join(dir, "environ")), []byte{0}) {
		if bytes.Equal(v, askVariable) || bytes.HasPrefix(v, preloadVariable) && bytes.Contains(v, libraryName) {
			s.asks = true
			s.static = s.image != before && isStaticProgram(filepath.Join(dir, "exe"))
			return s
		}
	}
	s.asks = bytes.Contains(readProc(filepath.Join(dir, "maps")), libraryName)
	return s
}

// imageAt identifies what runs.
func imageAt(dir string) (p image) {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "exe"), &st) == nil {
		p.device, p.inode = st.Dev, st.Ino
	}
	const start = 19 // the field starttime
	if f := statFields(dir); len(f) > start {
		p.start, _ = strconv.ParseUint(string(f[start]), 10, 64) // of the kernel's
	}
	return p
}

// statFields are those of a process's stat that follow its name, which may have any byte; none: it
// is gone.
func statFields(dir string) [][]byte {
	text := readProc(filepath.Join(dir, "stat"))
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}

// isStaticProgram reports whether a program makes its own system calls: it has no dynamic linker,
// or is Go's and has no use for one.
func isStaticProgram(exe string) bool {
	f, err := elffile.Open(exe)
	if err != nil {
		return false
	}
	defer f.Close()
	if f.Interpreter() == "" {
		return true
	}
	needed, err := f.Needed()
	if err != nil || len(needed) > 0 {
		return false
	}
	return f.IsGo()
}
