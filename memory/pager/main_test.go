package pager

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/memory/pager/preload"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// setting is what a test has a program run in.
type setting struct {
	local int64
	store Store
	size  int64
	full  func()
}

// outcome is what became of it.
type outcome struct {
	stdout, stderr string
	state          *os.ProcessState
	counts         Counts
	said           []string
}

// needPaging skips a test where programs cannot be paged.
func needPaging(t *testing.T) string {
	t.Helper()
	if err := Check(); err != nil {
		t.Skip(err)
	}
	library, err := preload.Build(t.Context())
	if errors.Is(err, preload.ErrCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return library
}

// compile compiles a program of testdata.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", filepath.Join("testdata", name+".c"), "-o", path, "-lpthread"}, flags...)
	if out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}

// runPaged runs a program to its end under a Pager.
func runPaged(t *testing.T, s setting, argv ...string) outcome {
	t.Helper()
	library := needPaging(t)
	var o outcome
	var mu sync.Mutex
	socket := filepath.Join(t.TempDir(), "pager")
	if s.store == nil {
		s.size = 1 << 28
		s.store = Memory(s.size)
	}
	if s.full == nil {
		s.full = func() { t.Error("the store is full") }
	}
	g, err := New(Config{Local: s.local, Store: s.store, Size: s.size, Socket: socket, Full: s.full, Say: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		o.said = append(o.said, text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Run() }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // of a hang
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "EXNET_PAGER="+socket)
	err = cmd.Run()
	g.Finish()
	if err := errors.Join(<-served, s.store.Close()); err != nil {
		t.Error(err)
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Errorf("%q hangs", argv)
	}
	o.stdout, o.stderr, o.state, o.counts = stdout.String(), stderr.String(), cmd.ProcessState, g.Counts()
	if free := g.places.free; free != len(g.places.users)-1 {
		t.Errorf("%d of %d pages of the store are free when all processes have ended", free, len(g.places.users)-1)
	}
	return o
}

// clean fails the test unless a program has succeeded, with memory that left and came back.
func (o outcome) clean(t *testing.T) {
	t.Helper()
	if !o.state.Success() || o.stderr != "" || len(o.said) > 0 {
		t.Errorf("%v\n%s%q", o.state, o.stderr, o.said)
	}
	if o.counts.Moved == 0 || o.counts.Saved == 0 || o.counts.Fetched == 0 {
		t.Errorf("no memory was elsewhere: %+v", o.counts)
	}
}

// same runs a program by itself and paged, and compares what it writes.
func same(t *testing.T, local int64, argv ...string) {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skip(err)
	}
	needPaging(t)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	o := runPaged(t, setting{local: local}, argv...)
	o.clean(t)
	if o.stdout != string(want) {
		t.Errorf("%q writes\n%.2000s\npaged, and by itself\n%.2000s", argv, o.stdout, want)
	}
}

// lines returns n lines in no order.
func lines(n int) string {
	var b strings.Builder
	x := uint64(88172645463325252)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteString(strings.Repeat(string(rune('a'+x%26)), 1+int(x>>8%9)%9))
		b.WriteByte('\n')
	}
	return b.String()
}

// hasText reports whether text is in one of the lines.
func hasText(said []string, text string) bool {
	return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) })
}
