package tempdir

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// childEnv has the test program be a process that makes a directory, says which, and waits.
const childEnv = "TEMPDIR_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		dir, err := New("kind")
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(dir + "\n")
		_ = unix.Pause() // until it is killed
	}
	os.Exit(m.Run())
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// start starts a process that holds a directory, and returns both.
func start(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b := make([]byte, 4096)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(string(b[:n]))
}

func newDir(t *testing.T) string {
	t.Helper()
	dir, err := New("kind")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestRemove(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := New("kind")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil || isDir(dir) {
		t.Errorf("it is there: %v, %v", isDir(dir), err)
	}
	if len(locks) != 0 {
		t.Errorf("held: %v", locks)
	}
}

// What a killed process leaves goes with the next New, what a living one has stays.
func TestKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	lives, there := start(t)
	killed, left := start(t)
	if err := os.WriteFile(filepath.Join(left, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newDir(t)
	if !isDir(there) || !isDir(left) {
		t.Fatal("the directory of a living process is gone")
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	own := newDir(t)
	if !isDir(there) || isDir(left) || !isDir(own) {
		t.Errorf("there are the living process's: %v, the killed one's: %v, this one's: %v; want all but the killed one's", isDir(there), isDir(left), isDir(own))
	}
	_ = lives.Process.Kill()
	_ = lives.Wait()
	if newDir(t); isDir(there) {
		t.Error("what the other one left is there")
	}
}

// Nothing else is removed.
func TestOthers(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	for _, name := range []string{"kind-1", "kind-x.tmp", "kind-more-1.tmp", "other-1.tmp"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(base, "kind-2.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(base, "kind-3.tmp"), 0o600); err != nil {
		t.Fatal(err)
	}
	stays := 6
	if os.Geteuid() == 0 {
		path := filepath.Join(base, "kind-4.tmp")
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		stays++
	}
	if err := os.Mkdir(filepath.Join(base, "kind-5.tmp"), 0o700); err != nil { // this one goes
		t.Fatal(err)
	}
	newDir(t)
	if entries, err := os.ReadDir(base); err != nil || len(entries) != stays+1 || !isDir(elsewhere) {
		t.Errorf("there are %v, %v; want %d and a new one", entries, err, stays)
	}
}

// Those that many make at the same time stay.
func TestTogether(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				dir, err := New("kind")
				if err == nil && !isDir(dir) {
					err = errors.New(dir + " is gone")
				}
				if err = errors.Join(err, Remove(dir)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestNowhere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("TMPDIR", missing)
	if _, err := New("kind"); !errors.Is(err, fs.ErrNotExist) || err.Error() != "TMPDIR="+missing+" does not exist" {
		t.Errorf("error %v", err)
	}
}

// Where nothing can be written in TMPDIR, it is another place.
func TestUnwritable(t *testing.T) {
	t.Setenv("TMPDIR", "/sys") // no user makes a directory there
	dir, err := New("kind")
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(dir, "/sys") {
		t.Errorf("it is %s", dir)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
}
