package caller

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/node/rpc/caller/callertest"
)

func TestMain(m *testing.M) { callertest.Main(m) }

// of returns who a process with these attributes is; gone: when it has ended.
func of(t *testing.T, attr *syscall.SysProcAttr, gone bool) (Caller, int) {
	t.Helper()
	conn, pid, end := callertest.Start(t, callertest.Listen(t), attr)
	if gone {
		end()
	}
	c, err := Of(conn)
	if err != nil {
		t.Fatal(err)
	}
	return c, pid
}

// A process is in this one's PID namespace or in one of its own, whoever it is and whatever else it
// has of its own.
func TestInPIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	user := &syscall.Credential{Uid: 4711, Gid: 4711}
	for name, tt := range map[string]struct {
		attr syscall.SysProcAttr
		gone bool
		want bool
	}{
		"root":                        {syscall.SysProcAttr{}, false, true},
		"a user":                      {syscall.SysProcAttr{Credential: user}, false, true},
		"root with a mount namespace": {syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, false, true},
		"root with a PID namespace":   {syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}, false, false},
		"a user with a PID namespace": {syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Credential: user}, false, false},
		"root that has ended":         {syscall.SysProcAttr{}, true, false},
		"root of a container":         {syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET}, false, false},
	} {
		conn, _, end := callertest.Start(t, callertest.Listen(t), &tt.attr)
		if tt.gone {
			end()
		}
		if got := InPIDs(conn); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Root of this process's own namespaces has no limits. Root that has a mount or PID namespace of
// its own, as in a container, has those of all such roots, and so has a process that has ended.
func TestAccounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tt := range []struct {
		name string
		attr syscall.SysProcAttr
		gone bool
		want Account
	}{
		{"root", syscall.SysProcAttr{}, false, Root},
		{"a user", syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}, false, 4711},
		{"root with a mount namespace", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, false, Guest},
		{"root with a PID namespace", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}, false, Guest},
		{"root of a container", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC}, false, Guest},
		{"root that has ended", syscall.SysProcAttr{}, true, Guest},
		{"root with a user namespace", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: callertest.IDs(0, 1), GidMappings: callertest.IDs(0, 1)}, false, Guest},
		{"a user that has ended", syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}, true, Gone},
		{"a user of root's user namespace", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Credential: &syscall.Credential{Uid: 7, Gid: 7},
			UidMappings: callertest.IDs(100000, 65536), GidMappings: callertest.IDs(100000, 65536)}, false, Guest},
		{"a user in a container", syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}, false, 4711},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, pid := of(t, &tt.attr, tt.gone)
			if c.Account != tt.want || c.PID != pid || c.Account.Unlimited() != (tt.want == Root) {
				t.Errorf("%+v, want account %v of process %d", c, tt.want, pid)
			}
		})
	}
}

// A user namespace that a user has made, within one of its own, has its user's account, whichever
// of the IDs that it was given (subuid(5)) a process has.
func TestSubordinateUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a user IDs")
	}
	cmd := exec.Command("setpriv", "--reuid=4711", "--regid=4711", "--clear-groups", "unshare", "--user",
		"sh", "-c", "echo ready; read line; exec setpriv --reuid=5 --regid=5 --clear-groups cat")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Skip(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait() // it may have failed already
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Skip("users may not make user namespaces here")
	}
	dir := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	for _, kind := range []string{"uid_map", "gid_map"} { // as newuidmap(1) does
		if err := os.WriteFile(filepath.Join(dir, kind), []byte("0 4711 1\n1 100000 65535\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Fprint(in, "go\nanswer\n"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "answer" {
		t.Fatal("it has not become another user")
	}
	var st unix.Stat_t
	if err := unix.Stat(dir+"/task", &st); err != nil || st.Uid != 100004 {
		t.Fatalf("it is user %d, %v", st.Uid, err)
	}
	if got, inode := UserIn(dir, st.Uid); got != 4711 || inode == 0 {
		t.Errorf("user %d of it has the account %v", st.Uid, got)
	}
	if got, inode := UserIn("/proc/self", 4711); got != 4711 || inode != 0 {
		t.Errorf("beside it, the user has the account %v", got)
	}
}

// Another user's process is not to be trusted.
func TestTrusted(t *testing.T) {
	ln := callertest.Listen(t)
	conn, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := Trusted(conn); err != nil {
		t.Errorf("its own: %v", err)
	}
}
