package outfile

import (
	"os"
	"time"
)

// Live is a file that others may read while it is written, such as a capture. It has no Commit: a
// command that fails before it has anything to write leaves the old file as it is, and one that
// fails later leaves what it has written.
type Live struct {
	file    *os.File
	started bool
}

// OpenLive opens a file for that, with the mode 0600 if it is new. For a FIFO it waits for a
// reader.
func OpenLive(name string) (*Live, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &Live{file: f}, nil
}

// Name returns the name that OpenLive got.
func (l *Live) Name() string { return l.file.Name() }

// Write implements io.Writer. The first call removes what was in the file.
func (l *Live) Write(b []byte) (int, error) {
	if !l.started && len(b) > 0 {
		if err := l.truncate(); err != nil {
			return 0, err
		}
		l.started = true
	}
	return l.file.Write(b)
}

// truncate empties a regular file; others have nothing to lose.
func (l *Live) truncate() error {
	info, err := l.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return l.file.Truncate(0)
}

// SetWriteDeadline ends a Write to a pipe at that time.
func (l *Live) SetWriteDeadline(t time.Time) error { return l.file.SetWriteDeadline(t) }

// Close closes the file.
func (l *Live) Close() error { return l.file.Close() }
