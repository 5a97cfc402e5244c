package housetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/longtest"
)

// Each of these parts can be deleted with its commands, and all else still builds. What belongs to
// a part: folders, which end in a slash, and files.
func TestParts(t *testing.T) {
	longtest.Skip(t) // builds everything once for each part
	for part, belongs := range map[string][]string{
		"lnet":   {"lnet/", "cmd/exn-tun/exntun/lnetselftest.go"},
		"memory": {"memory/", "cmd/exn-mem/", "node/daemon/memory.go"},
		"ports": {
			"ports/", "cmd/dsbench/internal/ports/", "cmd/dsbench/bench/ports.go", "cmd/exn-run/exnrun/libfabric.go", "node/daemon/ports.go",
			"test/testlab/paths/",
		},
		"study": {"study/", "cmd/exn-sim/"},
	} {
		t.Run(part, func(t *testing.T) {
			overlay := struct{ Replace map[string]string }{without(t, belongs)}
			text, err := json.Marshal(overlay)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "build", "-overlay", file, "./...")
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("without %s: %v\n%s", strings.Join(belongs, ", "), err, out)
			}
		})
	}
}

// without returns an overlay, as go build reads it, in which the Go files of a part are deleted.
func without(t *testing.T, belongs []string) map[string]string {
	t.Helper()
	gone := make(map[string]string)
	for _, b := range belongs {
		n := len(gone)
		err := filepath.WalkDir(filepath.Join(root, b), func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") {
				full, absErr := filepath.Abs(path)
				if absErr != nil {
					return absErr
				}
				gone[full] = ""
			}
			return err
		})
		if err != nil || len(gone) == n {
			t.Fatalf("%s: no Go files (%v)", b, err)
		}
	}
	return gone
}
