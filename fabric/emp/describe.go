package emp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// Version is the version of the directory and the hello. Nodes of different
// versions do not join one fabric.
const Version = 1

// Description describes a node in the directory.
type Description struct {
	Version int            `json:"version"`
	Node    fabric.NodeID  `json:"node"`
	Token   Token          `json:"token"` // new each time that a node joins
	Addrs   []netip.Prefix `json:"addrs"`
	MTU     int            `json:"mtu"`
	MAC     string         `json:"mac"`
	// Topology identifies the fabric's wiring; "" without a topology.
	Topology string `json:"topology,omitempty"`
	// Link is the kind of link that the node asks its peers for; "" for the default.
	Link  string    `json:"link,omitempty"`
	PID   int       `json:"pid"` // in the node's PID namespace
	Since time.Time `json:"since"`
}

// Token distinguishes a node from one that had its ID before.
type Token uint64

// MarshalText implements encoding.TextMarshaler: JSON numbers have 53 bits.
func (t Token) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(t)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Token) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*t = Token(n)
	return err
}

const (
	describeSuffix = ".json"
	newSuffix      = ".new" // of a file that is still being written
	socketSuffix   = ".sock"
	// maxDescription bounds what is read of a description.
	maxDescription = 1 << 16
)

// fileName returns the name of one of a node's files.
func fileName(n fabric.NodeID, suffix string) string { return fmt.Sprintf("node-%d%s", n, suffix) }

// nodeOf is the converse.
func nodeOf(name string) (n fabric.NodeID, suffix string, ok bool) {
	rest, ok := strings.CutPrefix(name, "node-")
	dot := strings.IndexByte(rest, '.')
	if !ok || dot < 0 {
		return 0, "", false
	}
	id, err := strconv.ParseUint(rest[:dot], 10, 16)
	return fabric.NodeID(id), rest[dot:], err == nil
}

// publish writes the description of this node and returns the locked file. The node
// lives as long as the file is open. Other nodes never see it incomplete or unlocked.
// The caller holds the directory's lock.
func (d *dir) publish(self Description) (*os.File, error) {
	text, err := json.Marshal(self)
	if err != nil {
		return nil, fmt.Errorf("emp: %w", err)
	}
	path := d.file(fileName(self.Node, describeSuffix))
	temp := path + newSuffix
	f, err := d.createFile(temp)
	if err != nil {
		return nil, dirError(err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = &os.PathError{Op: "flock", Path: temp, Err: err}
	}
	if err == nil {
		err = f.Chmod(d.fileMode())
	}
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		f.Close()
		os.Remove(temp)
		return nil, dirError(err)
	}
	return f, nil
}

// read returns the description of a node, and whether the node lives.
func (d *dir) read(n fabric.NodeID) (desc Description, alive bool, err error) {
	f, err := d.openFile(fileName(n, describeSuffix))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ELOOP) {
		return desc, false, nil // no node made this file
	}
	if err != nil {
		return desc, false, dirError(err)
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return desc, false, nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return desc, false, dirError(&os.PathError{Op: "flock", Path: f.Name(), Err: err})
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDescription))
	if err != nil {
		return desc, true, dirError(err)
	}
	desc, ok := parseDescription(n, text)
	if !ok {
		return desc, true, fmt.Errorf("emp: %s is not a description of a node: %w", f.Name(), ErrVersion)
	}
	return desc, true, nil
}

// parseDescription reads the description of node n. It must not trust text: anyone who
// may write to the directory may have written it.
func parseDescription(n fabric.NodeID, text []byte) (desc Description, ok bool) {
	// The text of a later version may not parse, but it has the version.
	if err := json.Unmarshal(text, &desc); err != nil && desc.Version == Version || desc.Version == 0 {
		return desc, false
	}
	desc.Node = n
	return desc, true
}

// listNodes returns the living nodes in the order of their IDs, and the dead ones whose
// descriptions are still there. A living node whose description cannot be read is
// left out, and the error says so.
func (d *dir) listNodes() (alive []Description, dead []fabric.NodeID, err error) {
	names, err := d.fileNames()
	if err != nil {
		return nil, nil, dirError(err)
	}
	var errs []error
	var found []*Description // pointers: sorting the values themselves would take 20 KB of code
	for _, name := range names {
		n, suffix, ok := nodeOf(name)
		if !ok || suffix != describeSuffix {
			continue
		}
		desc, lives, err := d.read(n)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone since
		case err != nil:
			errs = append(errs, err)
		case lives:
			found = append(found, &desc)
		default:
			dead = append(dead, n)
		}
	}
	slices.SortFunc(found, func(a, b *Description) int { return cmp.Compare(a.Node, b.Node) })
	for _, desc := range found {
		alive = append(alive, *desc)
	}
	return alive, dead, errors.Join(errs...)
}

// reap removes the files of nodes that do not live, and returns their IDs. The
// caller holds the lock, so nobody is joining.
func (d *dir) reap() ([]fabric.NodeID, error) {
	names, err := d.fileNames()
	if err != nil {
		return nil, dirError(err)
	}
	var dead []fabric.NodeID
	var errs []error
	for _, name := range names {
		n, _, ok := nodeOf(name)
		if !ok || slices.Contains(dead, n) {
			continue
		}
		if _, alive, err := d.read(n); alive || err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		dead = append(dead, n)
		errs = append(errs, d.removeNode(n))
	}
	if len(dead) > 0 {
		errs = append(errs, d.editGroups(func(*groupsFile) {}))
	}
	return dead, errors.Join(errs...)
}

// removeNode removes all files of a node, the description last: until then others see
// that there is something to remove.
func (d *dir) removeNode(n fabric.NodeID) error {
	names, err := d.fileNames()
	if err != nil {
		return dirError(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		of, suffix, ok := nodeOf(name)
		return !ok || of != n || suffix == describeSuffix
	})
	var errs []error
	for _, name := range append(names, fileName(n, describeSuffix)) {
		if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, dirError(err))
		}
	}
	return errors.Join(errs...)
}

// List returns the living nodes of the fabric in a directory.
func List(path string) ([]Description, error) {
	d, err := openDir(path)
	if err != nil {
		return nil, err
	}
	alive, _, err := d.listNodes()
	return alive, err
}

// Clean removes the files of dead nodes in a directory and returns their IDs. A missing
// directory is not an error.
func Clean(path string) ([]fabric.NodeID, error) {
	d, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Taking the lock makes its file, which would stay where no node has been.
	if used, err := d.inUse(); !used || err != nil {
		return nil, err
	}
	lock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	dead, err := d.reap()
	d.removeIfEmpty(lock)
	return dead, err
}

// inUse reports whether the directory has the lock or files of nodes.
func (d *dir) inUse() (bool, error) {
	names, err := d.fileNames()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed meanwhile
	}
	if err != nil {
		return false, dirError(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		_, _, ok := nodeOf(name)
		return ok || name == lockName
	}), nil
}
