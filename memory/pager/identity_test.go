package pager

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that connects, and then executes a program with other rights, is not let in.
func TestRootIsStill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	dir, err := os.MkdirTemp("/var/tmp", "pager") // not t.TempDir, where others may not look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Flags&unix.ST_NOSUID != 0 {
		t.Skipf("%s does not let a program have its owner's ID (%v)", dir, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const user, group = 65533, 65532
	for _, tt := range []struct {
		name string
		mode os.FileMode
		want error
	}{
		{"plain", 0o755, nil},
		{"set-user-ID", 0o755 | os.ModeSetuid, errOther},
		{"set-group-ID", 0o755 | os.ModeSetgid, errOther},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			b, err := os.ReadFile("/bin/cat")
			if err == nil {
				err = os.WriteFile(path, b, 0o700)
			}
			if err == nil {
				err = os.Chmod(path, tt.mode)
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group}}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer in.Close()
			if _, err := in.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it runs
				t.Fatal(err)
			}
			root, err := os.OpenRoot("/proc/" + strconv.Itoa(cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			peer := &unix.Ucred{Pid: int32(cmd.Process.Pid), Uid: user, Gid: group}
			if err := isStill(root, peer); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			peer.Uid++
			if err := isStill(root, peer); !errors.Is(err, errOther) {
				t.Errorf("a process of another user: %v", err)
			}
		})
	}
}
