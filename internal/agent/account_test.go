package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process has its user's limits though its directory in /proc is root's, as that of a program is
// which the user may execute and not read, and in a user namespace those of who has made it.
func TestAccountOf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip(err)
	}
	b, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "cat")
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(secret, b, 0o711), os.Chmod(secret, 0o711)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	user := &syscall.Credential{Uid: 4711, Gid: 4711}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostUsers, Size: 65536}}
	for _, tt := range []struct {
		name, path, want string
		attr             syscall.SysProcAttr
	}{
		{"root", cat, "", syscall.SysProcAttr{}},
		{"a user", cat, "user 4711", syscall.SysProcAttr{Credential: user}},
		{"not to be dumped", secret, "user 4711", syscall.SysProcAttr{Credential: user}},
		{"a user namespace of root's", cat, "user namespace ", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Credential: user, UidMappings: ids, GidMappings: ids}},
	} {
		cmd := exec.Command(tt.path)
		cmd.SysProcAttr = &tt.attr
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := accountOf(procDir, cmd.Process.Pid); got != tt.want && (!strings.HasSuffix(tt.want, " ") || !strings.HasPrefix(got, tt.want) || got == fmt.Sprint(tt.want, 0)) {
			t.Errorf("%s: the account is %q, want %q", tt.name, got, tt.want)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
