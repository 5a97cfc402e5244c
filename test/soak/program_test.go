package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/netns"
	"exnet/test/testlab"
)

// program is one that the soak runs, and starts again when it has killed it.
type program struct {
	name string // in reports
	node int
	ns   *netns.NS
	argv []string
	env  []string
	// says, if not "", is the line with which a program that writes no events is ready; accepts, if
	// not 0, is the port on which one listens then.
	says    string
	accepts int
	onEvent func(*program, event)
	onEnd   func(p *program, why string) // it has ended, and nobody wanted that

	turn sync.Mutex // held by who does something to it

	mu    sync.Mutex
	run   *running // guarded by mu
	times int      // guarded by mu; that it was started
}

// running is one process of a program.
type running struct {
	*testlab.Process
	states   chan event    // those with a State
	followed chan struct{} // closed when it has ended and all its events are taken
	awaited  bool          // guarded by program.mu; it is to end
}

// readyTime bounds the wait for a program, on a machine that is busy.
const readyTime = 5 * time.Minute

// start starts the program and waits until it is ready.
func (p *program) start() error {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), append(p.env, "LC_ALL=C")...)
	// Not the test's process group: a signal for that is for the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	proc, err := testlab.StartProcess(p.name, cmd, func() error { return p.ns.Start(cmd) }, nil)
	if err != nil {
		return err
	}
	r := &running{Process: proc, states: make(chan event, 16), followed: make(chan struct{})}
	p.mu.Lock()
	p.run = r
	p.times++
	p.mu.Unlock()
	go p.follow(r)
	return p.ready(r)
}

// follow reads what a process writes until it ends.
func (p *program) follow(r *running) {
	for line := range r.Lines {
		var e event
		if p.says != "" {
			if strings.HasPrefix(line, p.says) {
				e.State = "ready"
			}
		} else if json.Unmarshal([]byte(line), &e) != nil {
			continue // another program's words, or it was killed in the middle of a line
		}
		if e.State != "" {
			r.states <- e
		}
		p.onEvent(p, e)
	}
	<-r.Done
	p.mu.Lock()
	awaited := r.awaited
	p.mu.Unlock()
	if !awaited {
		p.onEnd(p, fmt.Sprintf("%v\n%s", r.Err, &r.Log))
	}
	close(r.followed)
}

func (p *program) ready(r *running) error {
	if p.accepts == 0 {
		_, err := p.state(r, "ready")
		return err
	}
	for end := time.Now().Add(readyTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-r.followed:
			return fmt.Errorf("%s has ended\n%s", p.name, &r.Log)
		default:
		}
		if testlab.Listens(r.PID(), p.accepts) {
			return nil
		}
	}
	return fmt.Errorf("%s does not listen on port %d\n%s", p.name, p.accepts, &r.Log)
}

// state waits for an event with a state.
func (p *program) state(r *running, state string) (event, error) {
	timer := time.NewTimer(readyTime)
	defer timer.Stop()
	for {
		select {
		case e := <-r.states:
			if e.State == state {
				return e, nil
			}
		case <-r.followed:
			return event{}, fmt.Errorf("%s has ended before it was %s\n%s", p.name, state, &r.Log)
		case <-timer.C:
			// What it does is in its goroutines' stacks.
			_ = r.Signal(unix.SIGQUIT)
			time.Sleep(time.Second)
			return event{}, fmt.Errorf("%s is not %s after %v\n%s", p.name, state, readyTime, &r.Log)
		}
	}
}

// tell has the program do something and waits for the state that it has then; "": it does not.
func (p *program) tell(command, state string) (event, error) {
	r := p.now()
	if _, err := fmt.Fprintln(r.In, command); err != nil {
		return event{}, fmt.Errorf("%s: %w", p.name, err)
	}
	if state == "" {
		return event{}, nil
	}
	return p.state(r, state)
}

func (p *program) now() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *program) pid() int { return p.now().PID() }

func (p *program) signal(s unix.Signal) error {
	if err := p.now().Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// end ends the program by a signal and waits for it.
func (p *program) end(s unix.Signal) error {
	p.mu.Lock()
	r := p.run
	if r == nil {
		p.mu.Unlock()
		return nil
	}
	r.awaited = true
	p.mu.Unlock()
	if err := p.signal(s); err != nil {
		return err
	}
	select {
	case <-r.followed:
		return nil
	case <-time.After(readyTime):
		err := fmt.Errorf("%s does not end by %v\n%s", p.name, s, &r.Log)
		_ = r.Signal(unix.SIGKILL)
		<-r.followed
		return err
	}
}
