package infile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"exnet/internal/infile"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := infile.Read(path); string(text) != "text" || err != nil {
		t.Errorf("a file: %q, %v", text, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.WriteString("through a pipe")
		w.Close()
	}()
	if text, err := infile.Read(fmt.Sprintf("/dev/fd/%d", r.Fd())); string(text) != "through a pipe" || err != nil {
		t.Errorf("a pipe: %q, %v", text, err)
	}
}

// None of these makes it wait or read without an end.
func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	fifo, big := filepath.Join(dir, "fifo"), filepath.Join(dir, "big")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := infile.Read(fifo); !errors.Is(err, infile.ErrEmpty) {
		t.Errorf("a FIFO without a writer: %q, %v", text, err)
	}
	if text, err := infile.Read("/dev/null"); len(text) > 0 || err != nil {
		t.Errorf("/dev/null: %q, %v", text, err)
	}
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, infile.Max+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{big, dir, "/no/such", "/dev/zero", "/dev/full"} {
		if _, err := infile.Read(path); !errors.As(err, new(*fs.PathError)) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
