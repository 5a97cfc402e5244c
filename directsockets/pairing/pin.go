package pairing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrPin says that nothing can be pinned in a directory.
var ErrPin = errors.New("pairing: cannot pin there")

// layout is the version of what the maps hold. Agents of the same one go on with each other's.
const layout = "pairs-1"

// linkName is the file of the link, beside those of the maps.
const linkName = "link"

// pinDir makes the directory in which New pins, below dir, and returns its path. Only root may
// write there, and it is on a BPF file system (bpf(2), BPF_OBJ_PIN).
func pinDir(dir string) (string, error) {
	at := filepath.Join(dir, layout)
	var on unix.Statfs_t
	there := at // or the folder that is there, in which it will be
	err := unix.Statfs(there, &on)
	for errors.Is(err, unix.ENOENT) && there != filepath.Dir(there) {
		there = filepath.Dir(there)
		err = unix.Statfs(there, &on)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrPin, there, err)
	}
	if on.Type != unix.BPF_FS_MAGIC {
		return "", fmt.Errorf("%w: %s is on no BPF file system: mount -t bpf bpf DIR makes one", ErrPin, dir)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPin, err)
	}
	for _, path := range []string{dir, at} {
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrPin, path, err)
		}
		if s.Mode&unix.S_IFMT != unix.S_IFDIR || s.Uid != 0 || s.Mode&0o022 != 0 {
			return "", fmt.Errorf("%w: %s is no directory that only root can write to", ErrPin, path)
		}
	}
	return at, nil
}

// unpin removes what is pinned in a directory of pinDir, and leaves the directory.
func unpin(at string) error {
	files, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	for _, f := range files {
		err = errors.Join(err, os.Remove(filepath.Join(at, f.Name())))
	}
	return err
}

// pinnedMaps opens the maps that are pinned in a directory, and makes those that are not there. If
// they cannot be this version's, all are made anew.
func pinnedMaps(at string) (maps, error) {
	m, err := newMaps(at)
	if errors.Is(err, ebpf.ErrMapIncompatible) || errors.Is(err, unix.EINVAL) {
		if err := unpin(at); err != nil {
			return maps{}, fmt.Errorf("%w: %w", ErrPin, err)
		}
		m, err = newMaps(at)
	}
	return m, err
}

// pinnedLink puts a program in the place of the one that a pinned link has on a cgroup, so that no
// handshake is missed, or attaches and pins it.
func pinnedLink(at string, cgroup *os.File, program *ebpf.Program) (link.Link, error) {
	path := filepath.Join(at, linkName)
	l, err := link.LoadPinnedLink(path, nil)
	if err == nil && onCgroup(l, cgroup) {
		if err = l.Update(program); err == nil {
			return l, nil
		}
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		if gone := os.Remove(path); gone != nil {
			return nil, fmt.Errorf("%w: %w", ErrPin, errors.Join(err, gone))
		}
	}
	if l, err = attachProgram(cgroup, program); err != nil {
		return nil, err
	}
	if err := l.Pin(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrPin, err), l.Close())
	}
	return l, nil
}

// unpinOthers removes what agents with other layouts have left beside a directory of pinDir: it
// would see each handshake for nobody.
func unpinOthers(at string) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(at), "pairs-*"))
	for _, other := range others {
		if other != at {
			err = errors.Join(err, os.RemoveAll(other))
		}
	}
	return err
}

// onCgroup reports whether a link is one of handshakes, on that cgroup. The kernel's ID of a cgroup
// is the number of its directory.
func onCgroup(l link.Link, cgroup *os.File) bool {
	info, err := l.Info()
	var s unix.Stat_t
	if err != nil || info.Cgroup() == nil || unix.Fstat(int(cgroup.Fd()), &s) != nil {
		return false
	}
	return info.Cgroup().CgroupId == s.Ino && uint32(info.Cgroup().AttachType) == uint32(ebpf.AttachCGroupSockOps)
}
