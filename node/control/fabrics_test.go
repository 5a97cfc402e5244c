package control

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFabrics(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"ds", "empty", "bad name"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := fabricsIn([]string{base, filepath.Join(base, "none")}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/x")
	if got := fabricBases(); len(got) != 2 || got[1] != "/x/exn" {
		t.Error(got)
	}
}
