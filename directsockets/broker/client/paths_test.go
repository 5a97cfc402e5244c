package client

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPaths is where a client looks for its broker.
func TestPaths(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	all, err := paths()
	if err != nil || len(all) != 2 || filepath.Dir(all[0].path) != SystemDir || filepath.Dir(all[1].path) != filepath.Join(base, "exn/ds") ||
		filepath.Base(all[0].path) != filepath.Base(all[1].path) {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv(PathEnv, "/x/y")
	if all, err = paths(); err != nil || len(all) != 1 || all[0].path != "/x/y" {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv(TapEnv, "/tap")
	if all, err = paths(); err != nil || len(all) != 2 || all[0].path != "/tap" || all[1].path != "/x/y" {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if d := UserDir(); !strings.HasPrefix(d, "/tmp/exn-") {
		t.Error(d)
	}
}
