package exntun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"exnet/internal/child"
	"exnet/internal/cli"
	"exnet/internal/ctxend"
	"exnet/node/control"

	"golang.org/x/sys/unix"
)

// detachedEnv marks the process that goes into the background.
const detachedEnv = "EXN_TUN_DETACHED"

// startDetached starts this program again, with the same arguments, in a session of its own. It
// waits until that node is up and prints its line, or until the node has failed.
func startDetached(ctx context.Context, p program) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), detachedEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var errs bytes.Buffer
	cmd.Stdout = w
	re, we, err := os.Pipe()
	if err != nil {
		return errors.Join(err, w.Close())
	}
	defer re.Close()
	cmd.Stderr = we
	err = cmd.Start()
	if err = errors.Join(err, w.Close(), we.Close()); err != nil {
		return err
	}
	defer ctxend.Do(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })() // fails only when it has ended
	// Both end when the node has let go of them: it is up, or gone.
	copied := make(chan error, 1)
	go func() { _, err := io.Copy(&errs, re); copied <- err }()
	line, err := io.ReadAll(r)
	if err = errors.Join(err, <-copied); err != nil {
		return err
	}
	if _, err := p.stderr.Write(errs.Bytes()); err != nil {
		return err
	}
	if len(line) > 0 {
		_, err := p.stdout.Write(line)
		return errors.Join(err, cmd.Process.Release())
	}
	_ = cmd.Wait() // the state says how
	return cli.ExitStatus(max(cli.ExitFailure, child.ShellStatus(cmd.ProcessState)))
}

// isDetached reports whether startDetached started this process.
func isDetached() bool { return os.Getenv(detachedEnv) != "" }

// letGo redirects standard input and output to /dev/null, and standard error to the log, once
// the node is up.
func letGo(log *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if log == nil {
		log = null
	}
	return errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(int(log.Fd()), 2, 0), unix.Dup3(int(null.Fd()), 1, 0))
}

// openLog opens a log for appending. It returns nil if name is empty.
func openLog(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// waitTime bounds how long --wait waits.
const waitTime = 30 * time.Second

// waitPeers waits until a node is linked with that number of peers.
func waitPeers(ctx context.Context, peers int, status func() (*control.Status, error)) error {
	if peers == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	for {
		s, err := status()
		if err != nil {
			return err
		}
		linked := 0
		for _, p := range s.Peers {
			if p.State == up {
				linked++
			}
		}
		if linked >= peers {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("--wait %d: after %v only %s linked", peers, waitTime, choose(linked == 1, "1 peer is", fmt.Sprintf("%d peers are", linked)))
			}
			return errInterrupted
		case <-time.After(10 * time.Millisecond):
		}
	}
}
