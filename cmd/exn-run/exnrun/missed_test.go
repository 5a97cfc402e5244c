//go:build amd64

package exnrun

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
)

// large is a library whose instructions are more than the preload library looks at. It makes a
// system call of its own.
const large = `
	.text
	.type	padding, @function
padding:
	.cfi_startproc
	.fill	150000, 1, 0x90
	ret
	.cfi_endproc
	.globl	own
	.type	own, @function
own:	.cfi_startproc
	movl	$39, %eax
	syscall
	ret
	.cfi_endproc
	.section .note.GNU-stack, "", @progbits
`

// listener listens, so that it has something to tell its broker.
const listener = `
#include <sys/socket.h>
long own(void);
int main(void) { return own() <= 0 || listen(socket(AF_INET, SOCK_STREAM, 0), 1); }
`

// compile builds something of C.
func compile(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("cc", append([]string{"-O1", "-o", path}, args...)...).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	return path
}

// callOf returns the address of the syscall instruction behind a symbol of a file.
func callOf(t *testing.T, path, symbol string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name != symbol {
			continue
		}
		text := f.Section(".text")
		b, err := text.Data()
		if err != nil {
			t.Fatal(err)
		}
		return s.Value + uint64(bytes.Index(b[s.Value-text.Addr:], []byte{0x0f, 0x05}))
	}
	t.Fatalf("%s has no %s", path, symbol)
	return 0
}

// --explain says where a program has a system call that no jump can replace, and what becomes of
// it: all stays on TCP, or the call goes past the library.
func TestMissed(t *testing.T) {
	const source = "../../../directsockets/preload/testdata/unpatched.c"
	main := writeFile(t, "main.c", listener, 0o600)
	library := compile(t, "liblarge.so", "-shared", "-fPIC", "-x", "assembler", writeFile(t, "large.s", large, 0o600))
	const stays, passes = "stays on TCP: no jump can replace its system call at %#x\n", "the library does not see its system call at %#x of liblarge.so: what is sent there"
	unpatched, static := compile(t, "unpatched", source), compile(t, "static", "-static", source)
	with := compile(t, "with", main, library)
	for _, tt := range []struct{ program, symbol, file, want string }{
		{unpatched, "stuck", unpatched, "unpatched " + stays},
		{with, "own", library, "with: " + passes},
		{static, "stuck", static, "static makes its own system calls and stays on TCP: a system call has a form that cannot be replaced: the one at %#x (number -1)\n"},
	} {
		path := filepath.Join(t.TempDir(), "ds.sock")
		_, end := startBrokerAt(t, path, time.Hour)
		defer end()
		cmd := exec.Command("/proc/self/exe", "--loopback", "--explain", tt.program)
		cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+path)
		_, stderr, status := output(t, cmd)
		if want := fmt.Sprintf(tt.want, callOf(t, tt.file, tt.symbol)); status != 0 || strings.Count(stderr, want) != 1 {
			t.Errorf("status %d, want %q in %s", status, want, stderr)
		}
	}
}

// A program that makes code with system calls while it runs stays on TCP from then on, and loses
// nothing, however it is linked; --explain says so.
func TestMade(t *testing.T) {
	const source = "../../../directsockets/preload/testdata/made.c"
	for name, command := range map[string][]string{"dynamic": {"cc"}, "static": {"cc", "-static"}, "static with musl": {"musl-gcc", "-static"}} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "made")
			if out, err := exec.Command(command[0], append(command[1:], "-O1", "-o", program, source)...).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			path := filepath.Join(t.TempDir(), "ds.sock")
			_, end := startBrokerAt(t, path, time.Hour)
			defer end()
			cmd := exec.Command("/proc/self/exe", "--loopback", "--explain", program)
			cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+path)
			_, stderr, status := output(t, cmd)
			const stays = "made stays on TCP: no jump can replace its system call at "
			if status != 0 || !strings.Contains(stderr, stays) || !strings.Contains(stderr, " of code that it made") {
				t.Errorf("status %d, %s", status, stderr)
			}
		})
	}
}
