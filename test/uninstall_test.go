package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// uninstallScript returns what uninstall.yaml runs on every node.
func uninstallScript(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../packaging/kubernetes/uninstall.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "            - |\n")
	text, _, found := strings.Cut(text, "          volumeMounts:")
	if !ok || !found {
		t.Fatal("uninstall.yaml has no script")
	}
	return regexp.MustCompile(`(?m)^ +`).ReplaceAllString(text, "")
}

// uninstall.yaml removes what the agent leaves on a host, and nothing else. A host on which it
// never was is left alone.
func TestUninstall(t *testing.T) {
	script := uninstallScript(t)
	left := []string{
		"opt/exnet/exn-tun", "opt/exnet/musl/libexnds.so", "etc/cdi/exnet.yaml",
		"var/lib/kubelet/device-plugins/exnet.sock", "run/exn/ds/.keep", "run/exn/ds/agent.direct",
		"sys/fs/bpf/exnet/pairs-1/link",
	}
	others := []string{
		"opt/cni/bin/bridge", "etc/cdi/other.yaml", "var/lib/kubelet/device-plugins/kubelet.sock",
	}
	for _, tt := range []struct {
		name         string
		there, stays []string
	}{
		{"after the agent", append(slices.Clone(left), others...), others},
		{"a second time", others, others},
		{"beside a fabric", append(append(slices.Clone(left), others...), "run/exn/lab/lock"), append(slices.Clone(others), "run/exn/lab/lock")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := t.TempDir()
			for _, name := range tt.there {
				path := filepath.Join(host, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("sh", "-c", script)
			cmd.Env = append(os.Environ(), "HOST="+host)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			var got []string
			if err := filepath.WalkDir(host, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					got = append(got, strings.TrimPrefix(path, host+"/"))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			want := slices.Sorted(slices.Values(tt.stays))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("there is %v, want %v", got, want)
			}
			for _, dir := range []string{"opt/exnet", "run/exn/ds", "sys/fs/bpf/exnet"} {
				if _, err := os.Stat(filepath.Join(host, dir)); err == nil {
					t.Errorf("%s is still there", dir)
				}
			}
			if _, err := os.Stat(filepath.Join(host, "run/exn")); (err == nil) != slices.Contains(tt.stays, "run/exn/lab/lock") {
				t.Errorf("run/exn: %v", err)
			}
		})
	}
}
