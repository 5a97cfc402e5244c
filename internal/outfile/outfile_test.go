package outfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var errHalf = errors.New("half of it")

// half writes something and fails.
func half(w io.Writer) error {
	_, err := io.WriteString(w, "half")
	return errors.Join(err, errHalf)
}

func whole(w io.Writer) error {
	_, err := io.WriteString(w, "new")
	return err
}

// holds fails the test unless a file has that text, and its folder no other file.
func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(all) != 1 {
		t.Errorf("in its folder: %v, %v", all, err)
	}
}

// A file that cannot be written whole is as it was, with its mode; a new one is not there.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.svg")
	if err := Write(path, half); !errors.Is(err, errHalf) {
		t.Errorf("half of a new file: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half of a new file is there: %v", err)
	}
	if err := Write(path, whole); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o640), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, half); !errors.Is(err, errHalf) {
		t.Errorf("half of an old file: %v", err)
	}
	holds(t, path, "old")
	if err := Write(path, whole); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A symbolic link stays, and leads to the new text.
func TestWriteLink(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Symlink(path, link), Write(link, whole)); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// A device that takes nothing is named in the error, and stays; so does a FIFO without readers.
func TestWriteDevice(t *testing.T) {
	if err := Write("/dev/full", whole); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "/dev/full: ") {
		t.Errorf("/dev/full: %v", err)
	}
	if info, err := os.Stat("/dev/full"); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("/dev/full: %v, %v", info, err)
	}
	if err := Write(os.DevNull, whole); err != nil {
		t.Error(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	name := filepath.Join("/proc/self/fd", fdName(w))
	if err := Write(name, func(w io.Writer) error {
		r.Close()
		return whole(w)
	}); err != nil {
		t.Errorf("a pipe whose reader has read enough: %v", err)
	}
}

func TestWriteNowhere(t *testing.T) {
	for _, name := range []string{"/nonexistent/page.svg", t.TempDir()} {
		if err := Write(name, whole); err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiscardTwice(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Discard(), f.Discard()); err != nil {
		t.Error(err)
	}
}

func fdName(f *os.File) string { return strconv.Itoa(int(f.Fd())) }

// A file that is this process's output keeps what is in it: the new text follows.
func TestWriteOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := os.Stderr
	defer func() { os.Stderr = before }()
	os.Stderr = f
	for _, name := range []string{filepath.Join("/proc/self/fd", fdName(f)), path} {
		if _, err := f.WriteString("said "); err != nil {
			t.Fatal(err)
		}
		if err := Write(name, whole); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, path, "said newsaid new")
}

// The old text stays until there is a new one; then nothing of it is left.
func TestLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "capture")
	if err := os.WriteFile(path, []byte("old and long"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "new"} {
		l, err := OpenLive(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			for _, part := range []string{"n", "", "ew"} {
				if _, err := l.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := text
		if text == "" {
			want = "old and long"
		}
		holds(t, path, want) // also before Close
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := OpenLive(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := l.Write([]byte("new")); n != 3 || err != nil {
		t.Errorf("a device: %d, %v", n, err)
	}
}

// A file of another user stays that user's.
func TestWriteOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.svg")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 4321); err != nil {
		t.Skip(err)
	}
	if err := Write(path, whole); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 1234 || s.Gid != 4321 || info.Mode().Perm() != 0o640 {
		t.Errorf("user %d, group %d, mode %v", s.Uid, s.Gid, info.Mode())
	}
	// Where anybody could have made the file, it becomes this user's.
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky), Write(path, whole)); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Where no new file can take the place of the old one, an error says why, and the old one stays.
func TestWriteNotReplaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	path := filepath.Join(t.TempDir(), "page.svg")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o666), os.Chmod(filepath.Dir(path), 0o755), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	alone := func(change func() error) error {
		go func() { // in a thread that ends with it
			runtime.LockOSThread()
			if err := change(); err != nil {
				errs <- err
				return
			}
			errs <- Write(path, whole)
		}()
		return <-errs
	}
	err := alone(func() error { return unix.Setfsuid(1234) })
	if want := filepath.Dir(path) + ": permission denied: the new file is written in the folder of " + path; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	holds(t, path, "old")
	err = alone(func() error {
		return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(path, path, "", unix.MS_BIND, ""))
	})
	if want := path + " is a mount point, which no new file can replace: name another file"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	holds(t, path, "old")
}
