package exncni

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/emp"
	"exnet/node/control"
)

// How long a node may take to come up, and to end. Runtimes wait for minutes.
const (
	upTime   = 30 * time.Second
	downTime = 15 * time.Second
)

// startNode runs exn-tun in a session of its own, waits until its interface is up, and
// completes the record. If it fails, it leaves nothing of the node behind.
func startNode(r *record, path, program string, args []string) error {
	log, err := os.OpenFile(logPath(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", in, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	r.PID = cmd.Process.Pid
	err = r.updateFile(path)
	if err == nil {
		err = waitUp(out)
	}
	if err == nil {
		err = r.findNode()
	}
	if err == nil {
		err = r.updateFile(path)
	}
	if err == nil {
		return cmd.Process.Release()
	}
	stopped := time.AfterFunc(downTime, func() { _ = cmd.Process.Kill() })
	defer stopped.Stop()
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()
	if said := lastLine(logPath(path)); said != "" {
		return errors.New(said)
	}
	return err
}

// waitUp waits for the line that exn-tun writes once it is up.
func waitUp(out *os.File) error {
	if err := out.SetReadDeadline(time.Now().Add(upTime)); err != nil {
		return err
	}
	_, err := bufio.NewReader(out).ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("exn-tun was not up within %v", upTime)
	case err != nil:
		return errors.New("exn-tun ended without output")
	}
	return nil
}

// lastLine returns the last line of exn-tun's log, "" if there is none.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// findNode looks for the node of r's process, and completes r.
func (r *record) findNode() error {
	nodes, err := control.Nodes(r.Dir)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.PID == r.PID {
			r.Node, r.Token = n.Node, n.Token
			return nil
		}
	}
	return fmt.Errorf("process %d is up, but is not a node in %s", r.PID, r.Dir)
}

// nodeDescription returns the description of r's node in the fabric's directory, and whether the
// node is up.
func (r *record) nodeDescription() (emp.Description, bool, error) {
	nodes, err := control.Nodes(r.Dir)
	if err != nil {
		return emp.Description{}, false, err
	}
	for _, n := range nodes {
		if n.PID == r.PID && (n.Token == r.Token || r.Token == 0) {
			return n, true, nil
		}
	}
	return emp.Description{}, false, nil
}

// nodeStatus asks r's node.
func (r *record) nodeStatus() (*control.Status, error) {
	d, up, err := r.nodeDescription()
	if err != nil {
		return nil, err
	}
	if !up {
		return nil, fmt.Errorf("node %d of the interface is not up", r.Node)
	}
	c, err := control.Dial(r.Dir, d)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status()
}

// stopNode ends r's node, and waits until its interface is gone. It succeeds if the node is not
// up.
func stopNode(r *record) error {
	if r.PID == 0 {
		return nil
	}
	d, up, err := r.nodeDescription()
	if err != nil {
		return err
	}
	if !up {
		if err := stopStarting(r); err != nil {
			return err
		}
		_, err := control.Clean(r.Dir) // it may have been killed
		return err
	}
	c, err := control.Dial(r.Dir, d)
	if errors.Is(err, control.ErrNoNode) {
		return nil // it is just ending
	}
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), downTime, fmt.Errorf("it did not end within %v", downTime))
	defer cancel()
	return c.Stop(ctx)
}

// stopStarting ends r's process if it is not a node yet: the plugin was killed while it waited.
// It leaves another process with the same ID alone.
func stopStarting(r *record) error {
	if r.Token != 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return nil // there is no such process
	}
	defer unix.Close(fd)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.PID))
	if err != nil || !strings.Contains(string(line), "\x00up\x00") || !strings.Contains(string(line), "\x00"+r.NetNS+"\x00") {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return nil // it has just ended
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(downTime.Milliseconds()))
	if err == nil && n == 0 {
		return fmt.Errorf("exn-tun, process %d, has not ended within %v", r.PID, downTime)
	}
	return nil
}
