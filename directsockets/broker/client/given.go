package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNotGiven says that a broker of an unknown user is not the host's.
var errNotGiven = errors.New("broker: its user is unknown here, and " + SystemDir + " is not a read-only mount of the host's")

// defaultOverflow is the user that the kernel shows for one that a user namespace does not know.
const defaultOverflow = 65534

// checkGivenDir returns nil if a broker of user uid at SystemDir is the host's, as a container
// in a user namespace of its own sees it: the user is none of the namespace's, and the directory
// a read-only mount, which nobody in the container can have written to, at a path that only its
// root can have made. Root of the container is trusted by its users in any case.
func checkGivenDir(uid uint32) error { return givenIn("/proc", SystemDir, uid) }

func givenIn(proc, dir string, uid uint32) error {
	text, err := os.ReadFile(filepath.Join(proc, "self/uid_map"))
	if err != nil {
		return err
	}
	if f := strings.Fields(string(text)); len(f) < 3 || f[2] == "4294967295" { // all users are known
		return errNotGiven
	}
	unknown := uint32(defaultOverflow)
	if text, err := os.ReadFile(filepath.Join(proc, "sys/kernel/overflowuid")); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			unknown = uint32(n)
		}
	}
	if uid != unknown {
		return errNotGiven
	}
	parent := filepath.Dir(dir)
	for _, path := range []string{filepath.Dir(parent), parent, dir} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("broker: %w", &os.PathError{Op: "lstat", Path: path, Err: err})
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 || st.Uid != 0 && st.Uid != unknown {
			return fmt.Errorf("%w: others may write %s", errNotGiven, path)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("broker: %w", &os.PathError{Op: "statfs", Path: dir, Err: err})
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return errNotGiven
	}
	return nil
}
