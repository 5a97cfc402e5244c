package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"exnet/directsockets/pairing"
	"exnet/directsockets/preload"
	"exnet/internal/cbuild"
	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// Host is the machine as the checks see it.
type Host struct {
	// Root has proc, sys and dev.
	Root fs.FS
	// CPUs is the number of CPUs that this process may use.
	CPUs int
	// Files is the limit of open descriptors, soft and hard.
	Files, FilesHard uint64
	// OpenTUN, Namespace, Membarrier, SealedMemory and Pairing (package pairing) try what their
	// names say.
	OpenTUN, Namespace, Membarrier, SealedMemory, Pairing func() error
	// Library returns the path of the library that exn-run finds: beside the program that runs, or
	// installed; "": there is none, and exn-run has to build it.
	Library func() string
	// LookPath finds a program.
	LookPath func(string) (string, error)
}

// This returns the machine that the process runs on.
func This() (Host, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return Host{}, fmt.Errorf("doctor: limit of descriptors: %w", err)
	}
	return Host{
		Root: os.DirFS("/"), CPUs: runtime.NumCPU(), Files: lim.Cur, FilesHard: lim.Max,
		OpenTUN: openTUN, Namespace: newNamespace, Membarrier: membarrier, SealedMemory: sealedMemory, Pairing: pairSockets,
		Library: func() string { return cbuild.Installed(preload.Name) }, LookPath: exec.LookPath,
	}, nil
}

func pairSockets() error {
	p, err := pairing.New("")
	if err != nil {
		return err
	}
	return p.Close()
}

func openTUN() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// newNamespace makes a network namespace, without privileges in a user namespace. The thread is
// never used again, and the namespace ends with it.
func newNamespace() error {
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	// A process with threads cannot make a user namespace: a child tries.
	if path, lerr := exec.LookPath("unshare"); lerr == nil {
		if out, cerr := exec.Command(path, "--user", "--map-root-user", "--net", "true").CombinedOutput(); cerr == nil {
			return nil
		} else if s := strings.TrimSpace(string(out)); s != "" {
			return errors.New(s)
		}
	}
	return err
}

func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

func membarrier() error {
	const cmdQuery, globalExpedited = 0, 1 << 1
	got, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmdQuery, 0, 0)
	switch {
	case errno != 0:
		return errno
	case got&globalExpedited == 0:
		return unix.ENOSYS
	}
	return nil
}

func sealedMemory() error {
	fd, err := unix.MemfdCreate("exn-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_FUTURE_WRITE)
	return err
}

// readText returns the text of a file below the root, without the white space around it.
func (h Host) readText(name string) (string, bool) {
	b, err := fs.ReadFile(h.Root, name)
	return strings.TrimSpace(string(b)), err == nil
}

// sysctl returns the value of a kernel parameter, with single blanks.
func (h Host) sysctl(name string) (string, bool) {
	s, ok := h.readText("proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	return strings.Join(strings.Fields(s), " "), ok
}

// lastNumber returns the last number of a parameter, which is the upper bound if there are
// three.
func (h Host) lastNumber(name string) (uint64, bool) {
	s, ok := h.sysctl(name)
	f := strings.Fields(s)
	if !ok || len(f) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[len(f)-1], 10, 64)
	return n, err == nil
}

// capable reports whether the process has a capability.
func (h Host) capable(bit int) bool {
	s, _ := h.readText("proc/self/status")
	for line := range strings.Lines(s) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<bit) != 0
		}
	}
	return false
}
