package exnrun

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/internal/elffile"
)

// elfFile is an executable of 64 bits, as far as its headers go.
func elfFile(machine elffile.Machine, linker string) string {
	const head, prog = 64, 56
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: machine.ID, Version: 1, Phoff: head, Ehsize: head, Phentsize: prog, Phnum: 1}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	p := elf.Prog64{Type: uint32(elf.PT_LOAD)}
	if linker != "" {
		p = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: head + prog, Filesz: uint64(len(linker) + 1)}
	}
	_ = binary.Write(&b, binary.LittleEndian, h) // a Buffer takes all
	_ = binary.Write(&b, binary.LittleEndian, p)
	return b.String() + linker + "\x00"
}

func TestFindProgram(t *testing.T) {
	self := elffile.Machines[runtime.GOARCH]
	if self.Bits != 64 {
		t.Skip("the files made here are for 64 bits")
	}
	other := elffile.Machines["arm64"]
	if self == other {
		other = elffile.Machines["amd64"]
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		name, program string
		kind          Kind
		reason        string
	}{
		{"dynamic", "sh", Dynamic, ""},
		{"Go", goTool, Go, "go is a Go program and stays on TCP: build it with exn-go"},
		{"Go with this module", test, GoPackage, ""},
		{"static", script("static", elfFile(self, "")), Static, "static is statically linked and stays on TCP"},
		{"packed", script("packed", strings.TrimSuffix(elfFile(self, ""), "\x00")+"\x00\x00\x00\x00UPX!"), Packed, "packed is packed (UPX)"},
		{"musl", script("musl", elfFile(self, "/lib/ld-musl-x86_64.so.1")), Musl, ""},
		{"foreign", script("foreign", elfFile(other, "/lib/ld.so")), Foreign, "another architecture than " + runtime.GOARCH},
		{"glibc", script("glibc", elfFile(self, "/lib64/ld-linux-x86-64.so.2")), Dynamic, ""},
		{"text", script("text", "echo\n"), Unknown, ""},
		{"script", script("script", "#!/bin/sh\n"), Dynamic, ""},
		{"script without end", script("script2", "#! /bin/sh"), Dynamic, ""},
		{"script of env", script("script3", "#!/usr/bin/env -S A=b sh -e\n"), Dynamic, ""},
		{"script of Go", script("script4", "#!"+goTool+" run\n"), Go, "script4 (run by go) is a Go program"},
		{"script of a script", script("script5", "#!"+filepath.Join(dir, "script4")+"\n"), Go, "script5 (run by go)"},
		{"endless script", script("script6", "#!"+filepath.Join(dir, "script6")+"\n"), Unknown, ""},
	} {
		p, err := FindProgram(tt.program)
		if err != nil || p.Kind != tt.kind || !strings.Contains(p.Reason(), tt.reason) || tt.reason == "" && p.Reason() != "" {
			t.Errorf("%s: %+v, %v, %q", tt.name, p, err, p.Reason())
		}
	}
}

func TestSetuid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	text, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	path := writeFile(t, "suid", string(text), 0o700)
	for _, tt := range []struct {
		uid, gid int
		mode     os.FileMode
		want     Kind
	}{
		{65534, 0, 0o755, Dynamic},
		{65534, 0, 0o755 | os.ModeSetuid, Setuid},
		{0, 65534, 0o755 | os.ModeSetgid, Setuid},
		{0, 0, 0o755 | os.ModeSetuid | os.ModeSetgid, Dynamic}, // nothing changes
	} {
		if err := os.Chown(path, tt.uid, tt.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		p, err := FindProgram(path)
		if err != nil || p.Kind != tt.want {
			t.Errorf("%+v: %+v, %v", tt, p, err)
		}
		if p.Kind == Setuid && !strings.Contains(p.Reason(), "suid runs with the rights of another user") {
			t.Errorf("the reason: %q", p.Reason())
		}
	}
}

func FuzzKindOf(f *testing.F) {
	f.Add([]byte(elfFile(elffile.Machines[runtime.GOARCH], "/lib/ld.so")))
	f.Add([]byte("#!/bin/sh\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, text, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := FindProgram(path); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNoLibraryNeeded: without a library and a compiler, programs that the dynamic linker does not
// load it into run all the same, as they would with it, and the others say what is missing.
func TestNoLibraryNeeded(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"ran\") }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		program string
		status  int
		says    string
	}{
		{program, 0, "ran"},
		{"/bin/true", 125, "there is no C compiler"},
	} {
		cmd := exec.Command("/proc/self/exe", "--log-level", "error", tt.program)
		cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"=/no/broker", "CC=/no/compiler", "HOME="+dir, "XDG_CACHE_HOME="+dir)
		_, stderr, status := output(t, cmd)
		if status != tt.status || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: status %d, %q", tt.program, status, stderr)
		}
	}
}

// A Go program needs no library: without one, and without a compiler, it runs, and a C program does
// not.
func TestRootNoLibrary(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run it as a user who has no library yet")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	const nobody = 65534
	run := func(argv ...string) (string, int) {
		cmd := exec.Command("/proc/self/exe", argv...)
		cmd.Env = []string{programEnv + "=1", client.PathEnv + "=/no/broker", "PATH=/nonexistent", "HOME=/nonexistent"}
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("nobody may not run the test: %v", err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, status := run("/bin/true")
	if status == 0 {
		t.Skip("a library is installed here")
	}
	if status != 125 || !strings.Contains(out, "there is no C compiler") {
		t.Errorf("/bin/true: status %d, %s", status, out)
	}
	out, status = run(goTool, "version")
	if status == 126 || status == 127 {
		t.Skipf("nobody may not run %s: %s", goTool, out)
	}
	if status != 0 || !strings.Contains(out, "go version go1.") {
		t.Errorf("%s version: status %d, %s", goTool, status, out)
	}
}
