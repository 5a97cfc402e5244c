package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/measure"
)

// cgroup is a group of processes whose CPU time is counted, that of those which have ended
// included. A nil one counts nothing.
type cgroup struct{ dir *os.File }

// newCgroup makes one at the root of cgroup2.
func newCgroup(name string) (*cgroup, error) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		path := filepath.Join(root, fmt.Sprintf("dsbench-%d-%s", os.Getpid(), name))
		if err := os.Mkdir(path, 0o755); err != nil {
			return nil, err
		}
		dir, err := os.Open(path)
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		return &cgroup{dir}, nil
	}
	return nil, errors.New("CPU times are taken by cgroup2, which is not mounted in /sys/fs/cgroup")
}

func (g *cgroup) fd() int { return int(g.dir.Fd()) }

// used is the CPU time that the group has taken.
func (g *cgroup) used() (time.Duration, error) {
	if g == nil {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir.Name(), "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", g.dir.Name())
}

// close kills what is left in the group and removes it.
func (g *cgroup) close() error {
	if g == nil {
		return nil
	}
	path := g.dir.Name()
	err := errors.Join(os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0), g.dir.Close())
	for end := time.Now().Add(measure.GraceTime); ; time.Sleep(10 * time.Millisecond) {
		removed := os.Remove(path)
		if removed == nil || time.Now().After(end) { // busy while processes end
			return errors.Join(err, removed)
		}
	}
}
