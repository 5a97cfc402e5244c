package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process has its user's limits, and in a user namespace those of who has made it, or of that.
func TestAccountOf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip(err)
	}
	user := &syscall.Credential{Uid: 4711, Gid: 4711}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostUsers, Size: 65536}}
	for _, tt := range []struct {
		name, want string
		attr       syscall.SysProcAttr
	}{
		{"root", "", syscall.SysProcAttr{}},
		{"a user", "user 4711", syscall.SysProcAttr{Credential: user}},
		{"a user namespace of root's", "user namespace ", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Credential: user, UidMappings: ids, GidMappings: ids}},
	} {
		cmd := exec.Command(cat)
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
