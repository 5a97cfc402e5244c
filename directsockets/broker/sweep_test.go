package broker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"

	"golang.org/x/sys/unix"
)

// Sweep keeps out of where a link leads, and of what others may write.
func TestSweepLink(t *testing.T) {
	for name, make := range map[string]func(base, victim string) error{
		"link":     func(base, victim string) error { return os.Symlink(victim, filepath.Join(base, "ds")) },
		"writable": func(base, victim string) error { return os.Chmod(base, 0o777) },
	} {
		base, victim := t.TempDir(), t.TempDir()
		if name == "writable" {
			victim = filepath.Join(base, "ds")
			if err := os.Mkdir(victim, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(victim, "passwd.lock")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := make(base, victim); err != nil {
			t.Fatal(err)
		}
		Sweep(filepath.Join(base, "ds"))
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sweep finds a lock just before its broker ends: the socket of the next one, of the same name,
// stays.
func TestSweepLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.sock")
	first, err := takePlace(path)
	if err != nil {
		t.Fatal(err)
	}
	name := first.lock.Name()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := first.removeSocket(); err != nil {
		t.Fatal(err)
	}
	next, err := takePlace(path)
	if err != nil {
		t.Fatal(err)
	}
	sweepOne(f, name)
	for _, file := range []string{name, path} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if err := next.removeSocket(); err != nil {
		t.Error(err)
	}
}

// A broker that begins while Sweep has its lock waits for that; where a broker has it, it does not.
func TestBeginWhileSwept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.sock")
	f, err := os.Create(strings.TrimSuffix(path, client.SocketSuffix) + lockSuffix) // of a killed one
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil { // as sweepOne does
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { f.Close() })
	p, err := takePlace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.removeSocket(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := takePlace(path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second broker: %v", err)
	}
	g, err := os.OpenFile(p.lock.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	sweepOne(g, p.lock.Name())
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a broker's socket was swept: %v", err)
	}
}
