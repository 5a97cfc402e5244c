package preload

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/cbuild"
)

// A broker that takes the place of another sees the connections that programs have, also of one
// that makes no others.
func TestFollow(t *testing.T) {
	t.Parallel()
	library, talks := testLibrary(t), filepath.Join(t.TempDir(), "talks")
	compileC(t, talks, cbuild.Command{Flags: warned, Files: []string{"testdata/talks.c"}})
	path := filepath.Join(t.TempDir(), "broker")
	first, end := runBroker(t, path)
	cmd := exec.CommandContext(t.Context(), talks)
	cmd.Env = append(os.Environ(), append(brokerEnv(path), "LD_PRELOAD="+library)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitDirect(t, first, 2)
	end()
	next, end := runBroker(t, path)
	defer end()
	awaitDirect(t, next, 2)
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// awaitDirect waits until a broker sees n ends that are direct.
func awaitDirect(t *testing.T, s *broker.Server, n int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		direct := 0
		for _, c := range s.Connections() {
			if c.Mode == connstats.ModeDirect.String() {
				direct++
			}
		}
		if direct == n {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d ends are direct, want %d: %+v", direct, n, s.Connections())
		}
	}
}
