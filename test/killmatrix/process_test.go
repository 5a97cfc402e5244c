package killmatrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
type process struct{ *testlab.Process }

// start starts this binary as another program in a namespace.
func start(ns *netns.NS, name, as string, args ...string) (*process, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = as
	cmd.Env = append(os.Environ(), asEnv+"="+as)
	cmd.WaitDelay = time.Second // a broker that exn-run has started may hold its output
	p, err := testlab.StartProcess(name, cmd, func() error { return ns.Start(cmd) }, nil)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

// line is the next line of its output.
func (p *process) line() (string, error) {
	select {
	case s, ok := <-p.Lines:
		if !ok {
			return "", fmt.Errorf("%s has ended: %s", p.Name, strings.TrimSpace(p.Log.String()))
		}
		return s, nil
	case <-time.After(hangTime):
		return "", fmt.Errorf("%s does not answer", p.Name)
	}
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
		p.Kill()
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

// Kill ends it, and closes its table.
func (r *remote) Kill() {
	if r.stats != nil {
		r.stats.Close()
	}
	r.process.Kill()
}

// ask has a peer do something.
func (r *remote) ask(q request) (reply, error) {
	var a reply
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if _, err := fmt.Fprintf(r.In, "%s\n", text); err != nil {
		return a, fmt.Errorf("%s: %w: %s", r.Name, err, strings.TrimSpace(r.Log.String()))
	}
	s, err := r.line()
	if err != nil {
		return a, fmt.Errorf("%s: %w", q.Op, err)
	}
	if err := json.Unmarshal([]byte(s), &a); err != nil {
		return a, fmt.Errorf("%s: %q: %w", r.Name, s, err)
	}
	if a.Err != "" {
		return a, &answerError{r.Name + ": " + q.Op, a.Err}
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
