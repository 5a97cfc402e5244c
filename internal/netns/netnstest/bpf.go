package netnstest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// BPF mounts a BPF file system where only this process finds it, or skips the test.
func BPF(t testing.TB) string {
	t.Helper()
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Skip(err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(mount) })
	return fmt.Sprintf("/proc/self/fd/%d", mount)
}
