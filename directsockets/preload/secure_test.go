package preload

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/cbuild"
)

// A set-user-ID program that has the library, as by /etc/ld.so.preload, believes nothing that its
// caller has put into the environment.
func TestSecureEnvironment(t *testing.T) {
	needCompiler(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	dir, err := os.MkdirTemp("", "exn-secure-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "secure")
	compileC(t, program, cbuild.Command{Flags: append(slices.Clone(warned), "-std=gnu11", "-I."), Files: []string{"ctest/secure.c", "conn/env.c"}})
	for _, c := range []struct {
		mode os.FileMode
		want string
	}{{0o755, "0 /x"}, {0o755 | os.ModeSetuid, "1 nothing"}} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(program, c.mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program)
		cmd.Env = []string{"EXNET_BROKER=/x"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		got := strings.TrimSpace(string(out))
		if err != nil || got != c.want {
			if c.mode&os.ModeSetuid != 0 && strings.HasPrefix(got, "0 ") {
				t.Skip("set-user-ID does nothing in " + dir)
			}
			t.Errorf("mode %v: %v, %q, want %q", c.mode, err, got, c.want)
		}
	}
}
