package netns_test

import (
	"os"
	"path/filepath"
	"testing"

	"exnet/internal/netns"
)

func TestNamedPathNone(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "/no/such", plain} {
		if name := netns.NamedPath(path); name != "" {
			t.Errorf("%q: %q", path, name)
		}
	}
}
