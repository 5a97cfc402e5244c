package exnrun

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// newTestKeeper makes a keeper and returns the path of its socket.
func newTestKeeper(t *testing.T) (k *keeper, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "broker"+keepSuffix)
	k, err := newKeeper(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.close(); err != nil {
			t.Error(err)
		}
	})
	return k, path
}

func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

// descriptorsOpen is how many this process has.
func descriptorsOpen(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A process that has ended before the broker looks at it is not waited for: the broker
// would stay for ever.
func TestKeepEnded(t *testing.T) {
	k, _ := newTestKeeper(t)
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 500 { // before its end, at it, and after it
		k.hold(cmd.Process.Pid, 0)
	}
	for end := time.Now().Add(time.Minute); k.idle() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processes that have ended are kept", k.count())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// One process that asks again and again takes one descriptor, and each time gets its
// answer.
func TestKeepOften(t *testing.T) {
	k, path := newTestKeeper(t)
	ask := func() {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 2)); n != 1 {
			t.Fatalf("answer of %d bytes, %v", n, err)
		}
	}
	ask()
	before := descriptorsOpen(t)
	for range 3000 {
		ask()
	}
	if n := k.count(); n != 1 || k.idle() != 0 {
		t.Errorf("one process is kept %d times", n)
	}
	if now := descriptorsOpen(t); now > before+2 { // the last one may be about to be closed
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A user with many processes has the broker stay for some of them, and leaves room for
// those of others.
func TestKeepMany(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have a process of another user")
	}
	k, _ := newTestKeeper(t)
	start := func(uid uint32) int {
		cmd := exec.Command("/bin/sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	const nobody, daemon = 65534, 1
	k.mu.Lock()
	k.users[nobody] = maxKept - 2 // as if it had so many
	k.mu.Unlock()
	for range 5 {
		k.hold(start(nobody), nobody)
	}
	if n := k.count(); n != 2 {
		t.Errorf("%d more are kept, and 2 were free", n)
	}
	k.hold(start(daemon), daemon)
	k.hold(start(0), 0)
	if n := k.count(); n != 4 {
		t.Errorf("%d are kept: not those of other users", n)
	}
}
