//go:build amd64 || arm64

package inject

import (
	"bytes"
	"errors"
	"io"
	"os"

	"exnet/internal/elffile"
)

// program is what find learns about a program's file. Addresses are the file's.
type program struct {
	info    os.FileInfo // of the file
	isGo    bool
	movable bool
	entry   uint64
	low     uint64 // of its first segment
	text    elffile.Segment
	sites   []site
	toKeep  kept   // where the sites are to be kept
	gate    uint64 // where the text ends: the rest of its page is executable, and no code uses it
}

// Reasons why a file cannot be done.
var (
	errDynamic = errors.New("it is dynamically linked")
	errPacked  = errors.New("it is packed (UPX)")
	errCgo     = errors.New("it uses cgo: start it with exn-run")
	errOldGo   = errors.New("its Go is older than 1.24, or has a Syscall6 that this version does not know")
	errHidden  = errors.New("it has Go's system calls, and nothing else says that it is Go's")
	errNoSites = errors.New("none of its system calls has a form that can be replaced")
	errNoRoom  = errors.New("its text leaves no byte unused")
	errShape   = errors.New("its text is not one segment")
	errPage    = errors.New("the page at 1 MiB is taken, where the library marks threads that are new to it")
	errFar     = errors.New("there is no free memory near its text")
)

// findProgram reads the file of a program. Where a program runs already, it prefers places whose
// jump leaves the instruction behind the system call as it is: threads wait in the kernel there.
// dir has what was found in programs that were started before, "": nothing is kept.
func findProgram(path string, running bool, dir string) (*program, error) {
	f, err := elffile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Machine != elffile.Machines[machine] {
		return nil, errMachine
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if f.Packed() {
		return nil, errPacked
	}
	p := &program{info: info, isGo: f.IsGo(), movable: f.Movable(), entry: f.Entry()}
	if needed, err := f.Needed(); err != nil {
		return nil, err
	} else if p.isGo && len(needed) > 0 {
		return nil, errCgo
	}
	if f.Interpreter() != "" && !p.isGo { // Go links even a program of its own code alone so (-buildmode=pie)
		return nil, errDynamic
	}
	if err := p.findText(f); err != nil {
		return nil, err
	}
	if p.isGo {
		err = p.findGo(f, dir)
	} else {
		if running && p.text.Size > maxRunning {
			return nil, errShape
		}
		err = p.findC(f, running, dir)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// goArgument is what ds_free_start is to know of a program that was loaded base from its addresses:
// where Go's Syscall6 comes back from the kernel; 0: it is C's.
func (p *program) goArgument(base uint64) uint64 {
	if p.isGo {
		return base + p.sites[0].at + goBehind
	}
	return 0
}

// isOf reports whether the program was read from the file, which has not changed since.
func (p *program) isOf(file string) bool {
	info, err := os.Stat(file)
	return err == nil && p != nil && os.SameFile(p.info, info) && info.ModTime().Equal(p.info.ModTime()) && info.Size() == p.info.Size()
}

// maxText bounds the text that is searched, maxRunning that of a running program of C, which may be
// a stranger's.
const (
	maxText    = 1 << 30
	maxRunning = 64 << 20
)

// findText finds the segment of code, and unused bytes behind it: the rest of its last page.
func (p *program) findText(f *elffile.File) error {
	p.low = 1 << 47
	var loads []elffile.Segment
	for _, s := range f.Segments() {
		if s.Kind != elffile.PTLoad {
			continue
		}
		loads = append(loads, s)
		p.low = min(p.low, s.Addr)
		if s.Flags&elffile.PFExec == 0 {
			continue
		}
		if p.text.Size != 0 || s.Flags&elffile.PFWrite != 0 || s.Size != s.MemSize || s.Size > maxText || s.Addr > 1<<46 {
			return errShape
		}
		p.text = s
	}
	if p.text.Size == 0 {
		return errShape
	}
	const aligned = 4 // an instruction of arm64
	p.gate = (p.text.Addr + p.text.Size + aligned - 1) &^ (aligned - 1)
	for _, s := range loads {
		if -p.gate%pageSize < uint64(len(gate)) || s.Addr != p.text.Addr && pageOf(s.Addr) == pageOf(p.gate) {
			return errNoRoom
		}
	}
	return nil
}

// findBytes returns where the text has these bytes first, and up to more that are behind them; 0:
// it has not.
func (p *program) findBytes(f *elffile.File, want []byte, more int) (at uint64, behind []byte, err error) {
	const chunk = 1 << 20
	buf := make([]byte, chunk+len(want)+more)
	for off := uint64(0); off < p.text.Size; off += chunk {
		n := min(uint64(len(buf)), p.text.Size-off)
		if _, err := f.ReadAt(buf[:n], int64(p.text.Off+off)); err != nil && !errors.Is(err, io.EOF) {
			return 0, nil, err
		}
		if i := bytes.Index(buf[:n], want); i >= 0 {
			behind = buf[i+len(want) : n]
			return p.text.Addr + off + uint64(i), behind[:min(more, len(behind))], nil
		}
	}
	return 0, nil, nil
}
