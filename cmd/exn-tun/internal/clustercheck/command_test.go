package clustercheck_test

import (
	"os"
	"path/filepath"
	"testing"

	"exnet/cmd/exn-tun/internal/clustercheck"
)

// TestCommandError: of all that kubectl says, its last line is the reason.
func TestCommandError(t *testing.T) {
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\necho E1129 memcache.go >&2\necho the server was refused >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := clustercheck.Command(kubectl)(t.Context(), nil, "get", "nodes")
	if want := kubectl + " get: the server was refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
