package emp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// watcher reports that the directory may have changed.
type watcher struct {
	f       *os.File
	changes chan struct{} // holds a token; closed when watching ends
}

// watchEvents are the events of nodes that come and go: a description is renamed to its
// final name, and the kernel closes it when its writer dies.
const watchEvents = unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_ONLYDIR

func watchDir(path string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		hint := ""
		if errors.Is(err, unix.EMFILE) {
			hint = ": raise the sysctl fs.inotify.max_user_instances"
		}
		return nil, fmt.Errorf("emp: inotify: %w%s", err, hint)
	}
	// Non-blocking, so that Close ends a Read.
	w := &watcher{f: os.NewFile(uintptr(fd), "inotify"), changes: make(chan struct{}, 1)}
	if _, err := unix.InotifyAddWatch(fd, path, watchEvents); err != nil {
		w.f.Close()
		return nil, dirError(&os.PathError{Op: "watch", Path: path, Err: err})
	}
	go w.reportChanges()
	return w, nil
}

// reportChanges reports that something changed. The directory shows what.
func (w *watcher) reportChanges() {
	defer close(w.changes)
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return // closed
		}
		if !concernsNodes(buf[:n]) {
			continue
		}
		select {
		case w.changes <- struct{}{}:
		default: // the last change is not handled yet
		}
	}
}

// inotifyLen is the offset of the name's length in struct inotify_event.
const inotifyLen = 12

// concernsNodes reports whether one of the events is about a file other than the lock,
// whose use is not a change, and files that are still being written.
func concernsNodes(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[inotifyLen:]))
		name := events[unix.SizeofInotifyEvent:min(end, len(events))]
		if text := unix.ByteSliceToString(name); text != lockName && !strings.HasSuffix(text, newSuffix) {
			return true
		}
		events = events[min(end, len(events)):]
	}
	return false
}

// close ends watching and waits for run to return.
func (w *watcher) close() {
	w.f.Close()
	for range w.changes {
	}
}
