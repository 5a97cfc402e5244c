package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStartStatus(t *testing.T) {
	_, notFound := exec.LookPath("no-such-program")
	_, directory := exec.LookPath("/")
	for _, c := range []struct {
		err  error
		want int
	}{
		{notFound, 127},
		{&fs.PathError{Op: "fork/exec", Path: "/x", Err: unix.ENOENT}, 127},
		{&fs.PathError{Op: "fork/exec", Path: "/x", Err: unix.EACCES}, 126},
		{&fs.PathError{Op: "fork/exec", Path: "/x", Err: unix.ENOEXEC}, 126},
		{directory, 126},
		{&fs.PathError{Op: "fork/exec", Path: "/x/y", Err: unix.ENOTDIR}, 126},
		{&fs.PathError{Op: "fork/exec", Path: "/x", Err: unix.E2BIG}, 126},
		{errors.New("other"), 1},
	} {
		if got := StartStatus(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// What PATH has and nobody may execute is refused, and not missing.
func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"plain": fs.ErrPermission, "folder": unix.EISDIR, "no-such-program": exec.ErrNotFound, "": exec.ErrNotFound, "sh": nil} {
		if path, err := LookPath(name); !errors.Is(err, want) || (err == nil) != filepath.IsAbs(path) {
			t.Errorf("%q: %q, %v", name, path, err)
		}
	}
}

func TestShellStatus(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		cmd := exec.Command("/bin/sh", "-c", script)
		_ = cmd.Run()
		if got := ShellStatus(cmd.ProcessState); got != want {
			t.Errorf("%s: %d, want %d", script, got, want)
		}
	}
}

// TestInForeground: a test has no terminal, or the runner's; either way it must
// not leave a descriptor.
func TestInForeground(t *testing.T) {
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	got := InForeground()
	if tty, err := os.Open("/dev/tty"); err == nil {
		tty.Close()
	} else if got {
		t.Error("in the foreground of no terminal")
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(before) {
		t.Errorf("%d descriptors, %d before, %v", len(after), len(before), err)
	}
}

func TestStartError(t *testing.T) {
	_, notFound := exec.LookPath("no-such-program")
	if err := StartError(notFound); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install it") {
		t.Error(err)
	}
	const missing = "/no/such/program"
	_, notThere := exec.LookPath(missing)
	if err := StartError(notThere); !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Error(err)
	}
	t.Chdir(t.TempDir())
	for name, mode := range map[string]fs.FileMode{"script": 0o755, "plain": 0o644} {
		if err := os.WriteFile(name, []byte("#! /nope/x -e\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("folder", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		text   string
		status int
	}{
		"./script": {"./script: its interpreter /nope/x does not exist", 127},
		"./plain":  {"./plain may not be executed: chmod +x ./plain", 126},
		"./folder": {"./folder: is a directory: name a program", 126},
		".":        {".: is a directory: name a program", 126},
	} {
		path, err := LookPath(name)
		if err == nil {
			err = exec.Command(path).Run()
		}
		if got := StartError(err); got.Error() != want.text || StartStatus(got) != want.status {
			t.Errorf("%s: %q, status %d", name, got, StartStatus(got))
		}
	}
	other := errors.New("other")
	if err := StartError(other); err != other {
		t.Error(err)
	}
}
