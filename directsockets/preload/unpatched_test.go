//go:build amd64

package preload

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"exnet/internal/cbuild"
)

// A program stays on TCP, and loses nothing, if one of its system calls cannot be replaced.
func TestUnpatched(t *testing.T) {
	library, program := testLibrary(t), filepath.Join(t.TempDir(), "unpatched")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"testdata/unpatched.c"}})
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), startBroker(t)...), "LD_PRELOAD="+library)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
