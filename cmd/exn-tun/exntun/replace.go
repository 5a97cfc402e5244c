package exntun

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/node/control"
	"exnet/node/daemon"
)

// replaceNode ends the node of the fabric that has the interface of cfg, if there is one, and
// stores the interface and, unless cfg has one, the node's ID in cfg.
func replaceNode(ctx context.Context, cfg *daemon.Config) error {
	n, ok := control.HolderIn(cfg.Dir, cmp.Or(cfg.NSPath(), "/proc/self/ns/net"), cfg.Interface)
	if !ok {
		return nil
	}
	c, err := control.Dial(cfg.Dir, n)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, downTime, fmt.Errorf("it did not end within %v", downTime))
	defer cancel()
	if cfg.Left, err = c.Replace(ctx); err != nil {
		return err
	}
	if cfg.Node == nil {
		cfg.Node = &n.Node
	}
	return nil
}

// firstStored is the first of the descriptors that systemd passes (SD_LISTEN_FDS_START of
// sd_listen_fds(3)).
const firstStored = 3

// storedInterface returns the descriptor of the interface that systemd kept while the node
// restarted; nil: it kept none. The caller closes it.
func storedInterface(name string) (left *os.File) {
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if pid, perr := strconv.Atoi(os.Getenv("LISTEN_PID")); err != nil || perr != nil || pid != os.Getpid() {
		return nil
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for i := range min(n, len(names)) {
		f := os.NewFile(uintptr(firstStored+i), names[i])
		unix.CloseOnExec(firstStored + i)
		if names[i] == name && left == nil {
			left = f
		} else {
			f.Close()
		}
	}
	return left
}

// storeInterface has systemd keep the interface until the service is stopped, and not only
// restarted, if its unit has FileDescriptorStoreMax (sd_pid_notify_with_fds(3)). dup makes the
// descriptor.
func storeInterface(name string, dup func() (int, error)) error {
	if os.Getenv(notifyEnv) == "" {
		return nil
	}
	fd, err := dup()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	notifySystemd("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, fd)
	return nil
}

// closeKept has systemd close the interface that it keeps.
func closeKept(name string) { notifySystemd("FDSTOREREMOVE=1\nFDNAME=" + name) }

// notifyEnv is the variable with the socket of systemd.
const notifyEnv = "NOTIFY_SOCKET"

// notifySystemd reports the state of the service to systemd (sd_notify(3)). It ignores errors:
// nothing depends on the message.
func notifySystemd(state string, fds ...int) {
	path := os.Getenv(notifyEnv)
	if path == "" {
		return
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(sock)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_ = unix.Sendmsg(sock, []byte(state), rights, &unix.SockaddrUnix{Name: path}, unix.MSG_NOSIGNAL)
}
