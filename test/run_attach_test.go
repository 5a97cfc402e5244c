package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/netns"
	"exnet/test/testlab"
)

// A static server, and a client that is a PIE of Go's own code alone, go direct in containers by
// the device and nothing else. The linker gives the client the library as well, which leaves it
// alone. Of a program that cannot be attached to, status says why.
func TestRootRunAttach(t *testing.T) {
	needRun(t, "ip", "ss", "python3", "unshare")
	if !netns.Privileged() {
		t.Skip("needs root")
	}
	bin, err := testlab.Build("exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	peer := filepath.Join(t.TempDir(), "peer")
	pie := peer + "-pie"
	for path, flags := range map[string][]string{
		peer: {"CGO_ENABLED=1", "-ldflags=-linkmode=external -extldflags=-static"},
		pie:  {"CGO_ENABLED=0", "-buildmode=pie"},
	} {
		build := exec.CommandContext(t.Context(), "go", "build", flags[1], "-o", path, "testdata/run/peer/main.go") // a file alone: not of this module
		build.Env = append(os.Environ(), flags[0], "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	waits := filepath.Join(t.TempDir(), "waits")
	outputOf(t, ".", "gcc", "-O1", "-static", "-nostdlib", "-Wl,-N", "-o", waits, "testdata/run/waits.c")
	out, err := exec.CommandContext(t.Context(), "unshare", "-nmpf", "--mount-proc", "--kill-child", script(t, "attach.sh"), bin, peer, pie, waits).CombinedOutput()
	if strings.Contains(string(out), "needs BPF and cgroup2") {
		t.Skip(string(out))
	}
	if err != nil || !strings.Contains("\n"+string(out), "\ndirect\nloaded\n") || !strings.Contains(string(out), "stays on TCP: its text is not one segment") {
		t.Errorf("%v: %s", err, out)
	}
}
