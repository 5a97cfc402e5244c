package netns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// markerDir holds one marker file for each named namespace of ours.
const markerDir = "/run/exn-netns"

// A marker is the claim of a process on a name. The file is locked (flock) as
// long as the owner lives, however it ends, which no process ID can say as
// surely. Its text is
//
//	pid PID
//	place DEV INO CTIME    the file /run/netns/NAME
//	ns DEV INO CTIME       the namespace mounted on it
//
// so that a later run removes those two and never another's of the same name.
type marker struct {
	name      string
	file      *os.File
	pid       int
	place, ns fileID
}

// fileID tells a file from every other one, also from a later one that got the
// same inode number.
type fileID struct {
	dev, ino uint64
	ctime    int64 // nanoseconds
}

func fileIDOf(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{uint64(st.Dev), st.Ino, st.Ctim.Nano()}, nil
}

// lockMarker takes the marker of name. If its last owner is dead, what that one
// left is removed first.
func lockMarker(name string) (*marker, error) {
	if err := os.MkdirAll(markerDir, 0o755); err != nil {
		return nil, fmt.Errorf("netns: %w%s", err, nameHint(err))
	}
	path := filepath.Join(markerDir, name)
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("netns: %w%s", err, nameHint(err))
		}
		m := &marker{name: name, file: file}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		text, _ := io.ReadAll(io.LimitReader(file, 4096))
		m.parse(string(text))
		if errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("netns: namespace %s: %w: process %d has it: stop that, or choose another name", name, ErrNameTaken, m.pid)
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("netns: locking %s: %w", path, err)
		}
		// The last owner may have removed the file between open and lock.
		if !m.isCurrent(path) {
			file.Close()
			continue
		}
		if err = m.unmount(); err == nil {
			err = m.write(fileID{}, fileID{})
		}
		if err != nil {
			file.Close()
			return nil, err
		}
		return m, nil
	}
}

func (m *marker) isCurrent(path string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := m.file.Stat()
	return err == nil && os.SameFile(here, there)
}

// write notes the owner, and the two things that carry the name.
func (m *marker) write(place, ns fileID) error {
	m.pid, m.place, m.ns = os.Getpid(), place, ns
	err := m.file.Truncate(0)
	if err == nil {
		_, err = m.file.WriteAt([]byte(m.text()), 0)
	}
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	return nil
}

// remove removes the name and gives up the claim to it.
func (m *marker) remove() error {
	err := m.unmount()
	if err == nil {
		// Before the lock goes: whoever opens the file now finds it gone.
		err = os.Remove(m.file.Name())
	}
	return errors.Join(err, m.file.Close())
}

func (m *marker) text() string {
	return fmt.Sprintf("pid %d\nplace %d %d %d\nns %d %d %d\n", m.pid,
		m.place.dev, m.place.ino, m.place.ctime, m.ns.dev, m.ns.ino, m.ns.ctime)
}

// parse reads what text writes. Lines that it does not understand, or that a
// crash cut off, describe nothing, and so nothing is removed for them.
func (m *marker) parse(text string) {
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			return
		}
		var id fileID
		if n, _ := fmt.Sscanf(line, "place %d %d %d\n", &id.dev, &id.ino, &id.ctime); n == 3 {
			m.place = id
		}
		if n, _ := fmt.Sscanf(line, "ns %d %d %d\n", &id.dev, &id.ino, &id.ctime); n == 3 {
			m.ns = id
		}
		_, _ = fmt.Sscanf(line, "pid %d\n", &m.pid)
	}
}
