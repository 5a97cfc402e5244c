package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const testID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A container has the name that its runtime's files have, whatever else is in them.
func TestNamesInFiles(t *testing.T) {
	root := t.TempDir()
	if got := nameOf(procDir, root, os.Getpid(), testID); got != "" {
		t.Errorf("without files: %q", got)
	}
	kubernetes := filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/k8s.io", testID, "config.json")
	put(t, kubernetes, `{"process":{}, "annotations":{"io.kubernetes.cri.container-name":"redis","io.kubernetes.cri.sandbox-name":"db-0","io.kubernetes.cri.sandbox-namespace":"shop"}}`)
	if got := nameOf(procDir, root, os.Getpid(), testID); got != "shop/db-0/redis" {
		t.Errorf("containerd: %q", got)
	}
	docker := filepath.Join(root, "var/lib/docker/containers", testID, "config.v2.json")
	for text, want := range map[string]string{
		`{"Name":"/db","State":{"Pid":1}}`:             "db",
		`{"Name":"/` + strings.Repeat("é", 300) + `"}`: strings.Repeat("é", maxName/2),
		`{"Name":7}`:   "shop/db-0/redis",
		`{"Name":"/x"`: "shop/db-0/redis",
		`{"Name":"/x` + strings.Repeat(" ", maxRead+100): "shop/db-0/redis",
	} {
		put(t, docker, text)
		if got := nameOf(procDir, root, os.Getpid(), testID); got != want {
			t.Errorf("%.40s: %q, want %q", text, got, want)
		}
	}
}

// A monitor of podman or CRI-O above a process names its container; one in a container's PID
// namespace, or of another container, does not.
func TestNameOfMonitor(t *testing.T) {
	dir := t.TempDir()
	for pid, p := range map[string]struct{ stat, comm, args, ns string }{
		"self": {"5 (x) S 1", "x", "", "pid:[1]"},
		"10":   {"10 (redis) S) S 9 1 1", "redis", "redis-server\x00", "pid:[2]"},
		"9":    {"9 (conmon) S 8 1 1", "conmon", "conmon\x00-c\x00" + testID + "\x00-n\x00forged\x00", "pid:[2]"},
		"8":    {"8 (conmon) S 7 1 1", "conmon", "conmon\x00-c\x00other\x00-n\x00other\x00", "pid:[1]"},
		"7":    {"7 (conmon) S 1 1 1", "conmon", "conmon\x00--api-version\x001\x00-c\x00" + testID + "\x00-u\x00x\x00-n\x00db\xff\x00", "pid:[1]"},
	} {
		at := filepath.Join(dir, pid)
		put(t, filepath.Join(at, "stat"), p.stat)
		put(t, filepath.Join(at, "comm"), p.comm+"\n")
		put(t, filepath.Join(at, "cmdline"), p.args)
		if err := os.MkdirAll(filepath.Join(at, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p.ns, filepath.Join(at, "ns/pid")); err != nil {
			t.Fatal(err)
		}
	}
	if got := nameOf(dir, t.TempDir(), 10, testID); got != "db?" {
		t.Errorf("%q, want db?", got)
	}
	for name, want := range map[string]string{
		"k8s_main_db-0_default_7bb61f48e0a24d9f00062b11deac7b7b_0": "default/db-0/main",
		"k8s_main_db-0_default": "k8s_main_db-0_default", "my_main_db_default_x_0": "my_main_db_default_x_0",
	} {
		put(t, filepath.Join(dir, "7/cmdline"), "conmon\x00-c\x00"+testID+"\x00-n\x00"+name+"\x00")
		if got := nameOf(dir, t.TempDir(), 10, testID); got != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
	put(t, filepath.Join(dir, "7/stat"), "7 (conmon")
	put(t, filepath.Join(dir, "7/cmdline"), "conmon\x00-n")
	if got := nameOf(dir, t.TempDir(), 10, testID); got != "" {
		t.Errorf("%q without a monitor", got)
	}
}

// The parent of a real process is found, whatever its name.
func TestParent(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	odd := filepath.Join(t.TempDir(), "a) S 1 (b")
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd, text, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd, "1000")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	if got := parentOf(procDir, cmd.Process.Pid); got != os.Getpid() {
		t.Errorf("parent %d, want %d", got, os.Getpid())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
