package testlab

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a program that runs beside a test, and that the test talks to by lines.
type Process struct {
	Name  string
	Cmd   *exec.Cmd
	In    io.WriteCloser // its standard input
	Lines chan string    // of its standard output; closed at its end
	Log   Output         // of its standard error, and what Each adds
	Done  chan struct{}  // closed when it has ended
	Err   error          // how it has ended; valid when Done is closed
}

// linesKept is how many lines of a process may wait to be read, maxLine how long one may be.
const (
	linesKept = 1 << 16
	maxLine   = 1 << 20
)

// StartProcess starts cmd by calling start, which is cmd.Start or starts it in a namespace. Lines
// that it prints go to each first, if that is not nil, and to Lines then.
func StartProcess(name string, cmd *exec.Cmd, start func() error, each func(p *Process, line string)) (*Process, error) {
	p := &Process{Name: name, Cmd: cmd, Lines: make(chan string, linesKept), Done: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.In = in
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, &p.Log
	err = start()
	w.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	go func() {
		defer out.Close()
		defer close(p.Lines)
		s := bufio.NewScanner(out)
		for s.Buffer(nil, maxLine); s.Scan(); {
			if each != nil {
				each(p, s.Text())
			}
			p.Lines <- s.Text()
		}
		if err := s.Err(); err != nil {
			fmt.Fprintln(&p.Log, "testlab: read its output:", err)
		}
	}()
	go func() {
		p.Err = cmd.Wait()
		close(p.Done)
	}()
	return p, nil
}

// PID is its process ID.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Signal sends it a signal. It fails if it has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.Cmd.Process.Signal(s) }

// Kill ends it, if it has not ended, and waits for that.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may have ended
	_ = p.In.Close()
	<-p.Done
}

// Ended reports whether it ends within a time.
func (p *Process) Ended(within time.Duration) bool {
	select {
	case <-p.Done:
		return true
	case <-time.After(within):
		return false
	}
}

// Listens reports whether somebody listens on a TCP port in the network namespace of a process. It
// does not try to connect: some servers serve one connection.
func Listens(pid, port int) bool {
	// proc_pid_net(5): local address:port in hexadecimal, remote, state; 0A is TCP_LISTEN.
	local := fmt.Appendf(nil, ":%04X", port)
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table)) // it may have ended
		for line := range bytes.Lines(text) {
			if f := bytes.Fields(line); len(f) > 3 && bytes.HasSuffix(f[1], local) && string(f[3]) == "0A" {
				return true
			}
		}
	}
	return false
}
