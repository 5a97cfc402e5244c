package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// A node that crashes leaves no core dump, which would have its key and the frames of others.
func TestRootNoCore(t *testing.T) {
	longtest.Skip(t)
	ns, bin := netnstest.New(t), t.TempDir()
	if err := testlab.Into(bin, "exnet/cmd/exn-tun"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A shell that allows core dumps, and the crash that Go has dump one.
	node := startIn(t, ns, nil, "sh", "-c", fmt.Sprintf("cd %s && ulimit -c unlimited && GOTRACEBACK=crash exec %s up --dir %s --fair --addr 10.2.0.1/24",
		dir, filepath.Join(bin, "exn-tun"), filepath.Join(dir, "lab")))
	node.says(t, "is up")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", node.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && f[4] != "0" {
			t.Errorf("%s", line)
		}
	}
	if err := node.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	<-node.done
	if s := node.cmd.ProcessState.Sys().(syscall.WaitStatus); s.CoreDump() {
		t.Errorf("it has dumped: %v", node.cmd.ProcessState)
	}
}
