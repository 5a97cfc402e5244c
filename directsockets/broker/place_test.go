package broker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// asNobody has a command run as a user without rights.
func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// publicDir is a directory that everybody can look into, with the test binary.
func publicDir(t *testing.T) (dir, binary string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("/tmp", "broker-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "test")
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}

// A broker that ends removes its directory while another one begins.
func TestMakeDirWhileItGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "exn/ds")
	for range 3000 {
		if err := makeDir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var gone sync.WaitGroup
		gone.Go(func() {
			_ = os.Remove(dir)
			_ = os.Remove(filepath.Dir(dir))
		})
		err := makeDir(dir, 0o700)
		gone.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRootOtherUsers has another user be a client of root's broker, which is allowed,
// and root a client of another user's, which is not.
func TestRootOtherUsers(t *testing.T) {
	dir, binary := publicDir(t)
	checkFDs(t)
	s, stop := startServer(t, Config{Path: filepath.Join(dir, "root.sock")})
	cmd := asNobody(self(roleClient, s.Path()))
	cmd.Path = binary
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "connected") {
		t.Errorf("nobody is refused: %v, %s", err, out)
	}
	stop()

	cmd = asNobody(self(roleBroker, filepath.Join(dir, "nobody.sock")))
	cmd.Path = binary
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	var st os.FileInfo
	brokertest.Eventually(t, "there is a socket", func() (ok bool) {
		var err error
		st, err = os.Stat(filepath.Join(dir, "nobody.sock"))
		return err == nil && st.Mode().Perm() == 0o600
	})
	c, err := client.Dial(client.Config{Path: filepath.Join(dir, "nobody.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Wait(context.Background()); !errors.Is(err, client.ErrNoBroker) || !strings.Contains(err.Error(), "neither root nor this user") {
		t.Errorf("root trusts nobody: %v", err)
	}
}

// TestRootDefaultPlace uses the paths of SPEC.md, 6, in a namespace of its own.
func TestRootDefaultPlace(t *testing.T) {
	checkFDs(t)
	ns := netnstest.New(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	s, err := New(Config{In: ns.Do})
	if err != nil {
		t.Fatal(err)
	}
	go s.Run(context.Background())
	var st unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &st); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(client.SystemDir, portText64(st.Ino)+".sock"); s.Path() != want {
		t.Errorf("socket %s, want %s", s.Path(), want)
	}
	for path, want := range map[string]os.FileMode{s.Path(): 0o666, filepath.Dir(s.Path()): 0o755} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	c := dialClient(t, client.Config{In: ns.Do})
	if err := ns.Do(func() error { _, err := client.Find(); return err }); err != nil {
		t.Error(err)
	}
	if _, err := New(Config{In: ns.Do}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second broker: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	brokertest.Eventually(t, "the client notices", func() bool { return !c.Connected() })
	for _, suffix := range []string{client.SocketSuffix, lockSuffix} {
		if _, err := os.Stat(strings.TrimSuffix(s.Path(), client.SocketSuffix) + suffix); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", suffix, err)
		}
	}
}

// TestUserPlace is where users without root have theirs.
func TestUserPlace(t *testing.T) {
	base := t.TempDir()
	// Nobody else may have made it.
	old := unix.Umask(0o077)
	err := makeDir(filepath.Join(base, "exn/ds"), 0o755)
	unix.Umask(old)
	if err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"exn", "exn/ds"} {
		if st, err := os.Stat(filepath.Join(base, dir)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	if err := makeDir(filepath.Join(base, "exn/ds"), 0o755); err != nil {
		t.Errorf("it is there already: %v", err)
	}
	if err := os.Chmod(filepath.Join(base, "exn/ds"), 0o777); err != nil {
		t.Fatal(err)
	}
	if makeDir(filepath.Join(base, "exn/ds"), 0o700) == nil {
		t.Error("a directory that everybody may write was taken")
	}
	if err := os.Symlink("/", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if makeDir(filepath.Join(base, "link/ds"), 0o700) == nil {
		t.Error("a link was taken")
	}
}

// TestSweep removes what killed brokers left, and nothing else.
func TestSweep(t *testing.T) {
	checkFDs(t)
	dir := t.TempDir()
	s, _ := startServer(t, Config{Path: filepath.Join(dir, "2.sock")})
	for _, name := range []string{"1.sock", "1.lock", "3.sock", "note"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(dir)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if got := strings.Join(left, " "); got != "2.lock 2.sock 3.sock note" {
		t.Errorf("left: %s", got)
	}
	dialClient(t, client.Config{Path: s.Path()})
}
