package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// PathEnv names the socket of the broker to use, in place of the namespace's.
const PathEnv = "EXNET_BROKER"

// TapEnv names the socket of what sits between a program and its broker. It goes before PathEnv and
// the namespace's while it is there: a daemon outlives the exn-run that has set it.
const TapEnv = "EXNET_TAP"

// Where the sockets are (SPEC.md, 6).
const (
	SystemDir    = "/run/exn/ds"
	SocketSuffix = ".sock"
	KeepSuffix   = ".keep" // of the socket by which exn-run tells its broker to stay
	Network      = "unixpacket"
	threadNS     = "/proc/thread-self/ns/net"
)

// UserDir is where users have their sockets.
func UserDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "exn/ds")
	}
	return fmt.Sprintf("/tmp/exn-%d/ds", os.Geteuid())
}

// CheckDir returns nil if path is a directory, and no link to one, that only this user or root may
// write: nobody else can have put there what is in it. fs.ErrNotExist: there is nothing.
func CheckDir(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("broker: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("broker: %w", &os.PathError{Op: "stat", Path: path, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("broker: %s is not a directory that only user %d may write: remove it", path, os.Geteuid())
	}
	return nil
}

// CheckUserDir returns nil if UserDir and the one above it pass CheckDir. In /tmp anybody could
// have made them.
func CheckUserDir() error {
	dir := UserDir()
	if err := CheckDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return CheckDir(dir)
}

// SocketName is the name of the socket of the calling thread's namespace.
func SocketName() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(threadNS, &st); err != nil {
		return "", fmt.Errorf("broker: %s: %w", threadNS, err)
	}
	return strconv.FormatUint(st.Ino, 10) + SocketSuffix, nil
}

// place is where a broker may be.
type place struct {
	path string
	tap  bool // what TapEnv names
	user bool // in the user's directory
	root bool // in SystemDir
}

// brokerPlaces are where a client of the calling thread's namespace looks for the broker,
// in that order.
func brokerPlaces() (all []place, err error) {
	if path := os.Getenv(TapEnv); path != "" {
		all = []place{{path: path, tap: true}}
	}
	if path := os.Getenv(PathEnv); path != "" {
		return append(all, place{path: path}), nil
	}
	name, err := SocketName()
	if err != nil {
		return nil, err
	}
	return append(all, place{path: filepath.Join(SystemDir, name), root: true}, place{path: filepath.Join(UserDir(), name), user: true}), nil
}

// betterPlace is where a broker that is better than the one at path would be: root's, of the
// namespace of which that is the user's own. nil: nowhere.
func betterPlace(all []place, path string) (root *place) {
	for i, at := range all {
		if at.root {
			root = &all[i]
		}
		if at.user && at.path == path {
			return root
		}
	}
	return nil
}

// checkTrusted returns nil if the broker that conn has reached there may be used.
func (p place) checkTrusted(conn *net.UnixConn) error {
	err := caller.Trusted(conn)
	if !p.root || !errors.Is(err, caller.ErrUntrusted) {
		return err
	}
	uid, uidErr := caller.UserOf(conn)
	if uidErr != nil {
		return uidErr
	}
	return checkGivenDir(uid)
}

// ownSocket reports whether root or this user has made the socket there. Who listens at one that
// takes nobody does not say who it is.
func (p place) ownSocket() bool {
	var st unix.Stat_t
	return unix.Lstat(p.path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// checkPlace says why there can be no broker.
func (p place) checkPlace() error {
	if !p.user {
		return nil
	}
	return CheckUserDir()
}
