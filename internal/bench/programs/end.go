package programs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/bench/tcpbench"
)

// end is a server, and what clients of it need.
type end struct {
	o      Options
	p      Pair
	direct bool
	dir    string
	cpus   tcpbench.Placement
	port   string

	server *exec.Cmd
	out    bytes.Buffer
	done   chan struct{} // closed when the server has ended
	runs   int
}

// Times after which a program counts as hung.
const (
	serverTime = 20 * time.Second
	graceTime  = 20 * time.Second
)

// start starts the server.
func (e *end) start(ctx context.Context) error {
	if err := os.Mkdir(e.dir, 0o777); err != nil {
		return err
	}
	// Not subject to the umask: a server may be another user's.
	if err := os.Chmod(e.dir, 0o777); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, e.port, _ = net.SplitHostPort(ln.Addr().String()) // it is one
	if err := ln.Close(); err != nil {
		return err
	}
	argv, err := e.p.server(e)
	if err != nil {
		return err
	}
	direct := e.direct && !e.p.plainPeer
	e.server = e.command(ctx, e.cpus.Server, direct, "", argv)
	e.server.Stdout, e.server.Stderr = &e.out, &e.out
	if err := e.server.Start(); err != nil {
		return err
	}
	e.done = make(chan struct{})
	go func() {
		_ = e.server.Wait() // servers end by a signal
		close(e.done)
	}()
	for end := time.Now().Add(serverTime); ; {
		if c, err := net.Dial("tcp", "127.0.0.1:"+e.port); err == nil {
			c.Close()
			break
		}
		select {
		case <-e.done:
			return fmt.Errorf("%s ends: %s", argv[0], lastLine(e.out.String()))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not listen", argv[0])
		}
	}
	if e.p.prepare != nil {
		return e.p.prepare(ctx, e)
	}
	return nil
}

// stop ends the server.
func (e *end) stop() error {
	if e.done == nil {
		return nil
	}
	_ = unix.Kill(-e.server.Process.Pid, unix.SIGTERM) // it may have ended
	select {
	case <-e.done:
		return nil
	case <-time.After(graceTime):
	}
	_ = unix.Kill(-e.server.Process.Pid, unix.SIGKILL)
	<-e.done
	return fmt.Errorf("the server of %s does not end by SIGTERM", e.p.Name)
}

// run runs the client once.
func (e *end) run(ctx context.Context) (s sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.o.duration+graceTime, errors.New("the client hangs"))
	defer cancel()
	report := ""
	if e.direct && !e.p.plainPeer {
		e.runs++
		report = filepath.Join(e.dir, "report"+strconv.Itoa(e.runs))
	}
	cmd := e.command(ctx, e.cpus.Client, e.direct, report, e.p.client(e))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return s, fmt.Errorf("%w: %s", err, lastLine(stdout.String()+stderr.String()))
	}
	if report != "" && !e.p.short {
		if err := anyDirect(report); err != nil {
			return s, err
		}
	}
	if s, err = e.p.parse(stdout.String()); err != nil {
		return s, fmt.Errorf("%w: %s", err, lastLine(stdout.String()+stderr.String()))
	}
	return s, nil
}

// command makes the command of a program: under exn-run if it is to be direct, bound
// to a CPU if the measure says so, killed with its children when ctx ends.
func (e *end) command(ctx context.Context, cpu int, direct bool, report string, argv []string) *exec.Cmd {
	if direct {
		run := []string{e.o.exnRun, "--loopback"}
		if report != "" {
			run = append(run, "--report", report)
		}
		argv = append(append(run, "--"), argv...)
	}
	if e.p.bound {
		argv = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// anyDirect reports an error unless a connection in a report of exn-run was direct.
func anyDirect(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	why := "the library reported none"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct{ Path, Choice string }
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		if r.Path == pathDirect {
			return nil
		}
		why = r.Choice
	}
	return fmt.Errorf("no connection was direct (%s)", why)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
