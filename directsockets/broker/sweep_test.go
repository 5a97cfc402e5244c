package broker

import (
	"os"
	"path/filepath"
	"testing"
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
