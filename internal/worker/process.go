package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"exnet/internal/netns"
)

// Process is a worker as seen by the program that started it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // held open: the worker ends when it closes
	lines  *json.Decoder
	stderr *strings.Builder
}

// Start starts this program again in ns (nil: the current namespace) with command as its
// argument, and gives it the job. The end of ctx kills it. The caller must call Stop.
func Start(ctx context.Context, ns *netns.NS, command string, job any) (*Process, error) {
	// Not os.Executable: that file may have been replaced since.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command)
	// Out of the terminal's process group: Ctrl-C is for this program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &Process{cmd: cmd, stderr: &strings.Builder{}}
	cmd.Stderr = p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	p.stdin, p.lines = stdin, json.NewDecoder(stdout)
	if ns == nil {
		err = cmd.Start()
	} else {
		err = ns.Start(cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	if err := json.NewEncoder(stdin).Encode(job); err != nil {
		p.Stop()
		return nil, fmt.Errorf("giving a worker its job: %w%s", err, p.complaint())
	}
	return p, nil
}

// PID returns the worker's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Note waits for the worker's next note and stores it in what v points to.
func (p *Process) Note(v any) error {
	l, err := p.readLine()
	if err != nil {
		return err
	}
	return decode(l, l.Note, "a note", v)
}

// Result waits for the worker's result and stores it in what v points to.
func (p *Process) Result(v any) error {
	l, err := p.readLine()
	if err != nil {
		return err
	}
	return decode(l, l.Result, "a result", v)
}

// Both waits for the results of two workers that work together, and stores them in what resultA
// and resultB point to. It returns the error of the first that fails and kills the other, which
// could only report that its peer is gone.
func Both(a, b *Process, resultA, resultB any) error {
	done := make(chan error, 2)
	go func() { done <- a.Result(resultA) }()
	go func() { done <- b.Result(resultB) }()
	if err := <-done; err != nil {
		a.Kill()
		b.Kill()
		<-done
		return err
	}
	return <-done
}

// readLine waits for the worker's next line.
func (p *Process) readLine() (received, error) {
	var l received
	if err := p.lines.Decode(&l); err != nil {
		p.Stop()
		return l, fmt.Errorf("a worker ended without a result (%v)%s", p.cmd.ProcessState, p.complaint())
	}
	if l.Error != "" {
		return l, errors.New(l.Error)
	}
	return l, nil
}

// End tells the worker that its result is no longer wanted. The worker ends in order if its job
// heeds its context.
func (p *Process) End() { p.stdin.Close() }

// Kill ends the worker at once. Calls that wait for its lines return an error.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() } // fails only when it has ended

// Stop kills the worker and waits until it is gone. It is idempotent.
func (p *Process) Stop() {
	p.End()
	p.Kill()
	_ = p.cmd.Wait() // "signal: killed", or an earlier call's result
}

// complaint returns the last line that the worker wrote to standard error.
func (p *Process) complaint() string {
	text := strings.TrimSpace(p.stderr.String())
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}
