//go:build amd64

package preload

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"exnet/internal/cbuild"
)

// A program stays on TCP, and loses nothing, if one of its system calls cannot be replaced. The
// broker knows which.
func TestUnpatched(t *testing.T) {
	library, program := testLibrary(t), filepath.Join(t.TempDir(), "unpatched")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"testdata/unpatched.c"}})
	server, env := newBroker(t)
	cmd := exec.Command(program, "wait")
	cmd.Env = append(append(os.Environ(), env...), "LD_PRELOAD="+library)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	end, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stays := server.Stays()
	for limit := time.Now().Add(time.Minute); len(stays) == 0 && time.Now().Before(limit); stays = server.Stays() {
		time.Sleep(time.Millisecond)
	}
	if len(stays) != 1 || stays[0].PID != cmd.Process.Pid || stays[0].Missed.Count != 1 {
		t.Errorf("the broker knows %+v", stays)
	}
	if err := errors.Join(end.Close(), cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, &out)
	}
}
