package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// namedDir is where "ip netns" keeps its names (ip-netns(8)).
const namedDir = "/run/netns"

func namedPath(name string) string { return filepath.Join(namedDir, name) }

// NewNamed makes a namespace that "ip netns" shows under name. A left-over of
// that name from a run of ours that crashed is replaced; anything else that has
// the name is left alone, and the error wraps ErrNameTaken.
func NewNamed(name string) (*NS, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	mark, err := lockMarker(name)
	if err != nil {
		return nil, err
	}
	n, err := New()
	if err != nil {
		return nil, errors.Join(err, mark.remove())
	}
	if err := mark.mount(n); err != nil {
		return nil, errors.Join(err, mark.remove(), n.Close())
	}
	n.name, n.mark = name, mark
	return n, nil
}

// RemoveStale removes the named namespaces that runs of ours left behind when
// they crashed, and returns their names.
func RemoveStale() ([]string, error) {
	entries, err := os.ReadDir(markerDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		mark, err := lockMarker(e.Name())
		if errors.Is(err, ErrNameTaken) {
			continue // its owner lives
		}
		if err == nil {
			err = mark.remove()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// checkName accepts what is a plain file name in every shell.
func checkName(name string) error {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if name == "" || len(name) > 64 || strings.Trim(name, plain) != "" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") {
		return fmt.Errorf("netns: %w %q: use up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit", ErrName, name)
	}
	return nil
}

// mount gives n the marker's name, as "ip netns add" does, and notes in the
// marker what it made before it can be left behind.
func (m *marker) mount(n *NS) error {
	if err := shareNamedDir(); err != nil {
		return err
	}
	nsID, err := fileIDOf(fmt.Sprintf("/proc/self/fd/%d", n.Fd()))
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	path := namedPath(m.name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("netns: namespace %s: %w: remove it (ip netns del %[1]s) or choose another name", m.name, ErrNameTaken)
	}
	if err != nil {
		return fmt.Errorf("netns: %w%s", err, nameHint(err))
	}
	f.Close()
	placeID, err := fileIDOf(path)
	if err == nil {
		err = m.write(placeID, nsID)
	}
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", n.Fd()), path, "none", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("netns: mounting %s: %w", path, err)
	}
	return nil
}

// unmount removes the name if what carries it is what the marker describes.
func (m *marker) unmount() error {
	path := namedPath(m.name)
	// First the mount, then the file that it was mounted on.
	for range 2 {
		id, err := fileIDOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // someone else removed it: ip netns del
		}
		if err != nil {
			return fmt.Errorf("netns: %w", err)
		}
		switch id {
		case m.ns:
			err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		case m.place:
			return os.Remove(path)
		default:
			return nil // the name is another's by now
		}
		if err != nil {
			return fmt.Errorf("netns: unmounting %s: %w", path, err)
		}
	}
	return nil
}

// shareNamedDir makes namedDir a shared mount of its own, as "ip netns add"
// does at its first use: a later "ip netns add" would otherwise do so on top
// of our mounts, and a namespace removed here would live on in other mount
// namespaces.
func shareNamedDir() error {
	if err := os.MkdirAll(namedDir, 0o755); err != nil {
		return fmt.Errorf("netns: %w%s", err, nameHint(err))
	}
	err := unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(namedDir, namedDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("netns: preparing %s: %w%s", namedDir, err, nameHint(err))
	}
	return nil
}

// nameHint says what to do when a named namespace is not permitted.
func nameHint(err error) string {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return ": a named namespace needs root: run as root, or leave the name out"
	}
	return ""
}
