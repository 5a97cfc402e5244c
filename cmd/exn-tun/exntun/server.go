package exntun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"exnet/internal/child"
	"exnet/internal/netns"

	"golang.org/x/sys/unix"
)

// listenTimeout is how long a server may take until it listens: an interpreter on a busy
// machine takes many seconds. A server that never listens may still be useful. Tests change it.
var listenTimeout = 30 * time.Second

// A look at a namespace's sockets takes a millisecond. The next comes after a sixteenth of the time
// that the server has had, and after this at least.
const minListenPause = 10 * time.Millisecond

// server is a program that runs beside the command.
type server struct {
	command string
	cmd     *exec.Cmd
	output  *prefixWriter
	done    chan struct{} // closed when it has ended
}

// startServers starts the servers one after the other, each once the one before it listens: a
// server may need an earlier one.
func (s *session) startServers(ctx context.Context) error {
	for _, command := range s.o.serve {
		if err := s.startServer(ctx, command); err != nil {
			return fmt.Errorf("--serve %q: %w", command, err)
		}
	}
	return nil
}

func (s *session) startServer(ctx context.Context, command string) error {
	ns := s.lab.Cluster.Namespace(s.serverNode())
	before, err := listenSockets(ns)
	if err != nil {
		return err
	}
	srv := &server{
		command: command,
		cmd:     exec.Command("/bin/sh", "-c", command),
		output:  &prefixWriter{to: s.stderr, prefix: fmt.Sprintf("node %d: ", 1+s.serverNode())},
		done:    make(chan struct{}),
	}
	srv.cmd.Env = append(os.Environ(), s.nodeEnviron(s.serverNode())...)
	srv.cmd.Stdout, srv.cmd.Stderr = srv.output, srv.output
	// A daemon may keep the output open; what it writes later is not shown.
	srv.cmd.WaitDelay = serverGrace
	// Out of the terminal's process group: Ctrl-C is for the command.
	srv.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ns.Start(srv.cmd); err != nil {
		return err
	}
	go func() {
		_ = srv.cmd.Wait() // ProcessState says how
		close(srv.done)
	}()
	s.servers = append(s.servers, srv)
	return s.waitListening(ctx, srv, ns, before)
}

// waitListening waits until there is a socket in ns that was not there before.
func (s *session) waitListening(ctx context.Context, srv *server, ns *netns.NS, before map[string]bool) error {
	began, timeout := time.Now(), time.After(listenTimeout)
	done := srv.done
	for {
		now, err := listenSockets(ns)
		if err != nil {
			return err
		}
		for socket := range now {
			if !before[socket] {
				return nil
			}
		}
		select {
		case <-done:
			if status := child.ShellStatus(srv.cmd.ProcessState); status != 0 {
				return fmt.Errorf("it ended at once with status %d", status)
			}
			done = nil // it went into the background
		case <-timeout:
			s.printProgress("%q does not listen yet; going on", srv.command)
			return nil
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(max(minListenPause, time.Since(began)/16)):
		}
	}
}

// stopServers ends the servers and waits until they are gone.
func (s *session) stopServers() {
	for _, srv := range s.servers {
		srv.signalGroup(unix.SIGTERM)
	}
	began := time.Now()
	for _, srv := range s.servers {
		for killed := false; !srv.hasEnded(); time.Sleep(time.Millisecond) {
			if !killed && time.Since(began) > serverGrace {
				killed = true
				srv.signalGroup(unix.SIGKILL)
			}
		}
		srv.output.writeOpenLine()
	}
}

// signalGroup sends sig to the server's process group. It fails only when all in it
// have just ended.
func (srv *server) signalGroup(sig syscall.Signal) {
	if !srv.hasEnded() {
		_ = unix.Kill(-srv.cmd.Process.Pid, sig)
	}
}

// hasEnded reports whether the server has ended with all of its process group: the
// shell that started it may end first, and this process adopts the rest.
func (srv *server) hasEnded() bool {
	select {
	case <-srv.done:
	default:
		return false
	}
	for {
		pid, err := unix.Wait4(-srv.cmd.Process.Pid, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid > 0:
		case err == nil:
			return false // one is running
		default:
			return true // ECHILD
		}
	}
}

// listenSockets returns the TCP sockets that listen in ns, and its UDP and packet sockets (tcpdump
// has one of those).
func listenSockets(ns *netns.NS) (map[string]bool, error) {
	found := make(map[string]bool)
	err := ns.Do(func() error {
		for _, proto := range []string{"tcp", "tcp6", "udp", "udp6", "packet"} {
			table, err := os.ReadFile("/proc/thread-self/net/" + proto)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
				return err
			}
			addSockets(found, proto, string(table))
		}
		return nil
	})
	return found, err
}

// Columns of /proc/net/tcp and udp (proc_pid_net(5)), and of /proc/net/packet.
const (
	columnState       = 3
	columnInode       = 9
	columnPacketInode = 8
	stateListen       = "0A" // TCP_LISTEN
)

func addSockets(found map[string]bool, proto, table string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if proto == "packet" {
			if len(f) > columnPacketInode && f[0] != "sk" {
				found[proto+f[columnPacketInode]] = true
			}
			continue
		}
		if len(f) <= columnInode || f[0] == "sl" {
			continue
		}
		if f[columnState] == stateListen || strings.HasPrefix(proto, "udp") {
			found[proto+f[columnInode]] = true
		}
	}
}

// prefixWriter writes whole lines, each after a prefix.
//
// Concurrency: all methods may be called from many goroutines.
type prefixWriter struct {
	to     io.Writer
	prefix string

	mu   sync.Mutex
	line []byte // without its end so far
}

// Write implements io.Writer.
func (w *prefixWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, b...)
	for {
		end := bytes.IndexByte(w.line, '\n')
		if end < 0 {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(w.to, "%s%s\n", w.prefix, w.line[:end]); err != nil {
			return 0, err
		}
		w.line = w.line[end+1:]
	}
}

// writeOpenLine writes the line that has no end yet.
func (w *prefixWriter) writeOpenLine() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		fmt.Fprintf(w.to, "%s%s\n", w.prefix, w.line)
		w.line = nil
	}
}
