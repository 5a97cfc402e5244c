package ofi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLine is how long a line of a helper is at most.
const maxLine = 256

// process is a helper.
type process struct {
	cmd    *exec.Cmd
	ctl    net.Conn // orders and reports
	lines  *bufio.Reader
	stderr tail
	wait   func() error // for its end; may be called again
}

// tail keeps the beginning of what a helper says on standard error.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer // +checklocks:mu
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p[:min(len(p), max(0, 4*maxLine-t.buf.Len()))])
	return len(p), nil
}

// firstLine is the first line.
func (t *tail) firstLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, _, _ := strings.Cut(strings.TrimSpace(t.buf.String()), "\n")
	return first
}

// startHelper starts a helper with the descriptors of a ring.
func startHelper(path string, r *ring, args ...string) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("ofi: socketpair: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer mine.Close()
	p := &process{cmd: exec.Command(path, args...)}
	files := []*os.File{theirs}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, fd := range []int{r.seg.Fd(), r.wake, r.bell} {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("ofi: duplicate a descriptor: %w", err)
		}
		files = append(files, os.NewFile(uintptr(own), "ring"))
	}
	if p.ctl, err = net.FileConn(mine); err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	p.lines = bufio.NewReaderSize(p.ctl, maxLine)
	p.cmd.ExtraFiles, p.cmd.Stderr = files, &p.stderr
	p.cmd.Env = append(os.Environ(), "LC_ALL=C", "LD_PRELOAD=")
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		_ = p.ctl.Close()
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	p.wait = sync.OnceValue(p.cmd.Wait)
	return p, nil
}

// sendLine sends a line to the helper.
func (p *process) sendLine(format string, args ...any) error {
	if _, err := fmt.Fprintf(p.ctl, format+"\n", args...); err != nil {
		return fmt.Errorf("%w: %w", ErrHelper, err)
	}
	return nil
}

// readLine reads a line that begins with word, and returns the rest of it.
func (p *process) readLine(word string) (string, error) {
	line, err := p.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("%w: it sent a line of more than %d bytes", ErrHelper, maxLine)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", fmt.Errorf("%w: no %q in time: %w", ErrProvider, word, err)
	}
	if err != nil {
		return "", p.endError(err)
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	switch {
	case first == word:
		return rest, nil
	case first == "down":
		return "", fmt.Errorf("%w: %s", ErrProvider, plain(rest))
	}
	return "", fmt.Errorf("%w: the helper said %s, not %s", ErrHelper, plain(first), word)
}

// plain is what a helper says, fit to be shown.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// endError says how a helper has ended that has hung up.
func (p *process) endError(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("%w: %w", ErrHelper, err)
	}
	state := "it has closed its socket"
	kill := time.AfterFunc(time.Second, func() { _ = p.cmd.Process.Kill() })
	if err := p.wait(); err != nil {
		state = err.Error()
	}
	kill.Stop()
	said := plain(p.stderr.firstLine())
	if strings.Contains(said, "shared librar") {
		return fmt.Errorf("%w: %s", ErrMissing, said)
	}
	if said != "" {
		state += ": " + said
	}
	return fmt.Errorf("%w: %s", ErrHelper, state)
}

// killAndWait ends the helper, whatever it does, and waits for that.
func (p *process) killAndWait() {
	_ = p.ctl.Close()
	_ = p.cmd.Process.Kill()
	_ = p.wait() // it was killed
}
