package exnrun

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A process that has ended before the broker looks at it is not waited for: the broker
// would stay for ever.
func TestKeepEnded(t *testing.T) {
	k, err := newKeeper(filepath.Join(t.TempDir(), "broker"+keepSuffix))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 500 { // before its end, at it, and after it
		k.hold(cmd.Process.Pid)
	}
	for end := time.Now().Add(20 * time.Second); k.kept.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processes that have ended are kept", k.kept.Load())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := k.close(); err != nil {
		t.Error(err)
	}
}
