package exntun

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"exnet/internal/cli"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// countPackets reads a capture to its end, and returns the number of packets by
// interface.
func countPackets(t *testing.T, r io.Reader) map[string]int {
	t.Helper()
	count := make(map[string]int)
	ng, err := pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Error(err)
		return nil
	}
	for {
		_, ci, err := ng.ReadPacketData()
		if err == io.EOF {
			return count
		}
		if err != nil {
			t.Error(err)
			return count
		}
		in, err := ng.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Error(err)
			return count
		}
		count[in.Name]++
	}
}

// The demonstration says what it captured, and it is in the file.
func TestRootDemoCapture(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	path := filepath.Join(t.TempDir(), "x.pcapng")
	status, stdout, stderr := run(t.Context(), append(slices.Clone(quick), "--json", "-o", path)...)
	d := lastLineJSON(t, stdout)
	if status != cli.ExitOK {
		t.Fatalf("status %d, %+v\n%s", status, d.Checks, stderr)
	}
	i := slices.IndexFunc(d.Checks, func(c check) bool { return c.Name == "capture" })
	if i < 0 || !d.Checks[i].OK || !strings.Contains(d.Checks[i].Detail, "frames of all nodes in "+path) {
		t.Errorf("checks %+v", d.Checks)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := countPackets(t, f); n["exn0/1"] < 100 || n["exn0/2"] < 100 || len(n) != 2 {
		t.Errorf("packets %v", n)
	}
}

// A named pipe is read while a command runs.
func TestRootCommandCapture(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	if _, err := exec.LookPath("ping"); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan map[string]int)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer f.Close()
		got <- countPackets(t, f)
	}()
	cmd, _, stderr := programCommand("demo", "--capture", path, "--", "ping", "-c", "1", "10.2.0.2")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if n := <-got; n["exn0/1"] == 0 || n["exn0/2"] == 0 {
		t.Errorf("packets %v", n)
	}
	if !strings.Contains(stderr.String(), "captured ") {
		t.Errorf("stderr %q", stderr)
	}
}

// A capture that nobody answers leaves an old file as it is.
func TestCaptureKeeps(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "x.pcapng"), t.TempDir()
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", "--direct"} {
		status, _, stderr := run(t.Context(), append([]string{"capture", "-o", path, "--dir", dir}, strings.Fields(more)...)...)
		if text, err := os.ReadFile(path); status != cli.ExitFailure || err != nil || string(text) != "old" {
			t.Errorf("%s: status %d, %s; the file: %q, %v", more, status, stderr, text, err)
		}
	}
}

func TestCaptureFlag(t *testing.T) {
	testlab.RequireTUN(t)
	for _, c := range []struct {
		file   string
		status int
		want   string
	}{
		{"-", cli.ExitUsage, "name a file or a named pipe"},
		{"/nowhere/x", cli.ExitFailure, "--output: open /nowhere/x: no such file or directory"},
	} {
		status, _, stderr := run(context.Background(), "demo", "--capture", c.file)
		if status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q", c.file, status, stderr)
		}
	}
}
