package exnrun

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"exnet/directsockets/inject"
	"exnet/internal/cbuild"
	"exnet/internal/child"
	"exnet/internal/elffile"
	"exnet/internal/mark"

	"golang.org/x/sys/unix"
)

// Program is what is known about a program before it is started.
type Program struct {
	// Path is the file that is run.
	Path string
	// Image is the file that the kernel executes in the end: Path, or the interpreter of a
	// script.
	Image string
	// Script is the interpreter's file, if the program is a script, or what env finds, if that
	// is the interpreter; what follows is about that file then.
	Script string
	// Kind says whether the library reaches it.
	Kind Kind
}

// Kind is a kind of program, by whether the library can reach it.
type Kind uint8

// Kinds of programs.
const (
	Dynamic   Kind = iota // the library reaches it
	Unknown               // not an ELF file, or unreadable: tried all the same
	Go                    // Go's own system calls
	CGo                   // the same beside C's, which the library reaches; not Go's
	GoPackage             // the same, with this module in it: its package may do what the library does
	Static                // no dynamic linker
	Packed                // unpacks itself when it starts: the file does not show what it is
	Setuid                // runs with other rights than its caller's, and so without LD_PRELOAD
	Foreign               // another architecture
	Musl                  // the library for another C library reaches it
)

// Preloads reports whether LD_PRELOAD may be set: the dynamic linkers of the
// others would complain, or fail.
func (k Kind) Preloads() bool { return k != Foreign }

// Injects reports whether the library is put into the program while it starts.
func (k Kind) Injects() bool { return inject.Supported && (k == Go || k == Static) }

// Injects reports whether the library is put into the program while it starts: not if env is
// dynamically linked, which finds it.
func (p Program) Injects() bool {
	return p.Kind.Injects() && (p.Image == p.Path || p.Image == p.Script || kindOf(p.Image).Injects())
}

// Loads reports whether the dynamic linker loads the library into the program, as far as is known.
func (k Kind) Loads() bool { return k == Dynamic || k == Musl || k == Packed || k == Unknown }

// Reason says in a line why the library does not reach the program and what to
// do, "" if it does. It may still be injected (Kind.Injects).
func (p Program) Reason() string {
	name := p.name()
	switch p.Kind {
	case Go:
		return name + " is a Go program and stays on TCP: build it with exn-go"
	case CGo:
		return name + " is a Go program with cgo and stays on TCP: build it with CGO_ENABLED=0 or exn-go"
	case Static:
		return name + " is statically linked and stays on TCP: link it dynamically, or, if it is yours in Go, use the package exnet/directsockets"
	case Packed:
		return name + " is packed (UPX), and stays on TCP if what is packed is static: unpack it (upx -d)"
	case Setuid:
		return name + " runs with the rights of another user (setuid, setgid or capabilities), for which the system drops LD_PRELOAD, and stays on TCP: run it as that user"
	case Foreign:
		return name + " is for another architecture than " + runtime.GOARCH + " and stays on TCP: use one for this machine"
	}
	return ""
}

// name is how messages call the program.
func (p Program) name() string {
	name := filepath.Base(p.Path)
	if p.Script != "" {
		name += " (run by " + filepath.Base(p.Script) + ")"
	}
	return name
}

// FindProgram looks a program up as a shell would and examines its file.
func FindProgram(name string) (Program, error) {
	path, err := child.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return Program{}, err
	}
	p := Program{Path: path, Image: path}
	file := path
	for range maxInterpreters {
		by, runs := findInterpreter(file)
		if by == "" {
			break
		}
		if p.Image == file {
			p.Image = by
		}
		p.Script, file = runs, runs
	}
	p.Kind = kindOf(file)
	return p, nil
}

// maxInterpreters is how many #! lines the kernel follows (BINPRM_MAX_RECURSION).
const maxInterpreters = 4

// findInterpreter returns the file by which the kernel runs a script, "" if the file is none, and
// what runs in the end: for "env" the program that env finds.
func findInterpreter(path string) (by, runs string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // not to wait where it is a FIFO
	if err != nil {
		return "", ""
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	if !strings.HasPrefix(string(line), "#!") || err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(line) == 0 {
		return "", ""
	}
	words := strings.Fields(string(line[2:]))
	if len(words) == 0 {
		return "/bin/sh", "/bin/sh"
	}
	if filepath.Base(words[0]) != "env" {
		return words[0], words[0]
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
			continue
		}
		if found, err := exec.LookPath(w); err == nil {
			return words[0], found
		}
		break
	}
	return words[0], words[0]
}

// kindOf examines an executable file.
func kindOf(path string) Kind {
	info, err := os.Stat(path)
	if err != nil {
		return Unknown
	}
	if gainsRights(path, info) {
		return Setuid
	}
	f, err := elffile.Open(path)
	if err != nil {
		return Unknown
	}
	defer f.Close()
	if f.Machine != elffile.Machines[runtime.GOARCH] {
		return Foreign
	}
	if f.Packed() {
		return Packed
	}
	if f.IsGo() {
		if !inject.Known(f, cbuild.Place()) && mark.Direct(path) { // which reads all of the file
			return GoPackage
		}
		needed, err := f.Needed()
		switch {
		case err != nil || len(needed) == 0:
			return Go
		case isMusl(f) || inject.Go(path) != nil:
			return CGo
		}
		return Dynamic
	}
	switch {
	case f.Interpreter() == "":
		return Static
	case isMusl(f):
		return Musl
	}
	return Dynamic
}

// isMusl reports whether musl loads a program.
func isMusl(f *elffile.File) bool {
	return strings.Contains(filepath.Base(f.Interpreter()), "musl")
}

// gainsRights reports whether the kernel would run the file in secure mode
// (AT_SECURE, ld.so(8)).
func gainsRights(path string, info fs.FileInfo) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	mode := info.Mode()
	if mode&fs.ModeSetuid != 0 && int(st.Uid) != unix.Getuid() || mode&fs.ModeSetgid != 0 && int(st.Gid) != unix.Getgid() {
		return true
	}
	// Root has the capabilities already.
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0 && unix.Getuid() != 0
}
