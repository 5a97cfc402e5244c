package exngo

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is no binary is refused at once, also a FIFO that nobody writes.
func TestExplainRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fifo, t.TempDir(), "explain_test.go", "/no/such", "/dev/zero"} {
		if b, err := Explain(name); err == nil {
			t.Errorf("%s: %v", name, b)
		}
	}
	var out strings.Builder
	if err := explainAll([]string{"explain_test.go"}, &out); err == nil || strings.Count(err.Error(), "explain_test.go") != 1 {
		t.Errorf("%v", err)
	}
}
