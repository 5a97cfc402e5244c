package measure

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/result"
)

// Times after which a program that does not begin, or does not end, counts as hung.
const (
	StartTime = 30 * time.Second
	GraceTime = time.Minute
)

// Program is one that runs until it is stopped.
type Program struct {
	name  string
	cmd   *exec.Cmd
	said  bytes.Buffer  // both outputs; read once ended is closed
	ended chan struct{} // closed when it has ended
}

// Start starts a program by launch, in a process group of its own.
func Start(name string, cmd *exec.Cmd, launch func(*exec.Cmd) error) (*Program, error) {
	p := &Program{name: name, cmd: cmd, ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &p.said, &p.said, time.Second
	if err := launch(cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // it ends by a signal, or else says why
		close(p.ended)
	}()
	return p, nil
}

// Await calls ready until it succeeds. It fails early if one of the programs has ended.
func Await(ctx context.Context, what string, ready func() error, programs ...*Program) error {
	for end := time.Now().Add(StartTime); ; {
		err := ready()
		if err == nil {
			return nil
		}
		for _, p := range programs {
			select {
			case <-p.ended:
				return fmt.Errorf("%s ends: %s", p.name, result.LastLine(p.said.String()))
			default:
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, StartTime, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the program, in order if it does so in time. A nil one has ended.
func (p *Program) Stop() error {
	if p == nil {
		return nil
	}
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(GraceTime):
	}
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	<-p.ended
	return fmt.Errorf("%s does not end by SIGTERM", p.name)
}

// Output runs a program by launch, and returns what it prints. An error has the last line of it.
func Output(ctx context.Context, cmd *exec.Cmd, launch func(*exec.Cmd) error) (stdout, stderr string, err error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = launch(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("%w: %s", err, result.LastLine(out.String()+said.String()))
	}
	return out.String(), said.String(), err
}
