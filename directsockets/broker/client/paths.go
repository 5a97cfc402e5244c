package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// PathEnv names the socket of the broker to use, in place of the namespace's.
const PathEnv = "EXNET_BROKER"

// Where the sockets are (SPEC.md, 6).
const (
	SystemDir    = "/run/exn/ds"
	SocketSuffix = ".sock"
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

// SocketName is the name of the socket of the calling thread's namespace.
func SocketName() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(threadNS, &st); err != nil {
		return "", fmt.Errorf("broker: %s: %w", threadNS, err)
	}
	return strconv.FormatUint(st.Ino, 10) + SocketSuffix, nil
}

// paths are where a client of the calling thread's namespace looks for the broker,
// in that order.
func paths() ([]string, error) {
	if path := os.Getenv(PathEnv); path != "" {
		return []string{path}, nil
	}
	name, err := SocketName()
	if err != nil {
		return nil, err
	}
	return []string{filepath.Join(SystemDir, name), filepath.Join(UserDir(), name)}, nil
}
