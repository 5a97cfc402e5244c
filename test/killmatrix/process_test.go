package killmatrix

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"exnet/internal/netns"
	"exnet/test/testlab"
)

// Limits of what has none of its own.
const (
	// hangTime is when what should have come counts as hung.
	hangTime = 5 * time.Minute
	// acceptTime is how long a peer waits in accept.
	acceptTime = 5 * time.Second
)

// process is a program that was started for the matrix: a peer or a daemon.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string    // of its output
	log   testlab.Output // of its standard error
	done  chan struct{}
}

// start starts this binary as another program in a namespace.
func start(ns *netns.NS, name, as string, args ...string) (*process, error) {
	p := &process{name: name, lines: make(chan string, 64), done: make(chan struct{})}
	p.cmd = exec.Command("/proc/self/exe", args...)
	p.cmd.Args[0] = as
	p.cmd.Env = append(os.Environ(), asEnv+"="+as)
	p.cmd.Stderr = &p.log
	p.cmd.WaitDelay = time.Second // a broker that exn-run has started may hold its output
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = w
	err = ns.Start(p.cmd)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	p.in = in
	go func() {
		defer r.Close()
		defer close(p.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	go func() {
		_ = p.cmd.Wait() // they are killed
		close(p.done)
	}()
	return p, nil
}

// line is the next line of its output.
func (p *process) line() (string, error) {
	select {
	case s, ok := <-p.lines:
		if !ok {
			return "", fmt.Errorf("%s has ended: %s", p.name, strings.TrimSpace(p.log.String()))
		}
		return s, nil
	case <-time.After(hangTime):
		return "", fmt.Errorf("%s does not answer", p.name)
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// kill ends it, if it has not ended, and waits for that.
func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL)
	_ = p.in.Close()
	<-p.done
}

// remote is a process that runs runPeer or testdata/peer.py.
type remote struct {
	*process
	stats *os.File // its table of direct sockets; nil: it has none
}

// startPeer starts a peer. python: not the Go one, but peer.py under exn-run with
// these flags.
func startPeer(ns *netns.NS, name string, python []string) (*remote, error) {
	var p *process
	var err error
	if python == nil {
		p, err = start(ns, name, "peer")
	} else {
		script, serr := filepath.Abs("testdata/peer.py")
		if serr != nil {
			return nil, serr
		}
		style := "block"
		if len(python) > 0 {
			style = "poll"
		}
		args := append(append([]string{}, python...), "--", pythonPath(), script, style)
		p, err = start(ns, name, "exn-run", args...)
	}
	if err != nil {
		return nil, err
	}
	if _, err := p.line(); err != nil {
		p.kill()
		return nil, err
	}
	return &remote{process: p}, nil
}

// pythonPath is the system's Python, whatever else is in the PATH.
func pythonPath() string {
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

func (r *remote) kill() {
	if r.stats != nil {
		r.stats.Close()
	}
	r.process.kill()
}

// ask has a peer do something.
func (r *remote) ask(q request) (reply, error) {
	var a reply
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if _, err := fmt.Fprintf(r.in, "%s\n", text); err != nil {
		return a, fmt.Errorf("%s: %w: %s", r.name, err, strings.TrimSpace(r.log.String()))
	}
	s, err := r.line()
	if err != nil {
		return a, fmt.Errorf("%s: %w", q.Op, err)
	}
	if err := json.Unmarshal([]byte(s), &a); err != nil {
		return a, fmt.Errorf("%s: %q: %w", r.name, s, err)
	}
	if a.Err != "" {
		return a, &answerError{r.name + ": " + q.Op, a.Err}
	}
	return a, nil
}

// answerError is an error that a peer has got from its sockets.
type answerError struct{ what, class string }

func (e *answerError) Error() string { return e.what + ": " + e.class }

// stat asks for the state of a connection.
func (r *remote) stat(id int, reset bool) (stat, error) {
	a, err := r.ask(request{Op: "stat", ID: id, Reset: reset})
	return a.Stat, err
}

// errLate says that a condition did not come true.
var errLate = errors.New("not within " + hangTime.String())

// wait waits until f says true.
func wait(what string, f func() (bool, error)) error {
	return waitFor(hangTime, what, f)
}

func waitFor(limit time.Duration, what string, f func() (bool, error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		ok, err := f()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", what, errLate)
		}
	}
}
