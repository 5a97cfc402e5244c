package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/test/testlab"
)

// hangTime is when a program that should have ended counts as hung.
const hangTime = 5 * time.Minute

// command makes a command that is killed with its children when it hangs or the
// test ends.
func command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, programPath(argv[0]), argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// try runs a program on the host and returns its output.
func (h *host) try(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	return runIn(t, h.ns, nil, argv...)
}

// run runs a program that must succeed.
func (h *host) run(t *testing.T, argv ...string) string {
	t.Helper()
	return h.pipe(t, nil, argv...)
}

// pipe is run with something to read for the program.
func (h *host) pipe(t *testing.T, stdin io.Reader, argv ...string) string {
	t.Helper()
	out, err := runIn(t, h.ns, stdin, argv...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

func runIn(t *testing.T, ns *netns.NS, stdin io.Reader, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	cmd := command(ctx, argv...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	err := ns.Run(cmd)
	if ctx.Err() != nil {
		err = fmt.Errorf("hung: %w", errors.Join(err, ctx.Err()))
	}
	return out.String(), err
}

// process is a program that runs beside the test.
type process struct {
	name string
	cmd  *exec.Cmd
	out  testlab.Output
	kill context.CancelFunc
	done chan struct{} // closed when it has ended
	err  error         // valid then
}

// start starts a program, which is killed when the test ends.
func (h *host) start(t *testing.T, argv ...string) *process {
	t.Helper()
	return h.startPiped(t, nil, argv...)
}

// startPiped is start with something to read for the program.
func (h *host) startPiped(t *testing.T, stdin io.Reader, argv ...string) *process {
	t.Helper()
	return startIn(t, h.ns, stdin, argv...)
}

func startIn(t *testing.T, ns *netns.NS, stdin io.Reader, argv ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: strings.Join(argv, " "), cmd: command(ctx, argv...), kill: cancel, done: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, &p.out, &p.out
	if err := ns.Start(p.cmd); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.stop)
	return p
}

// stop kills the program, if it still runs.
func (p *process) stop() {
	p.kill()
	<-p.done
}

// wait waits for the end of the program, which must have succeeded, and returns
// its output.
func (p *process) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(hangTime):
		t.Fatalf("%s does not end\n%s", p.name, &p.out)
	}
	if p.err != nil {
		t.Fatalf("%s: %v\n%s", p.name, p.err, &p.out)
	}
	return p.out.String()
}

// terminate asks the program to end, and waits.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	p.wait(t)
}

// ends waits until the program has ended or f is true, and returns false if neither comes
// within limit.
func (p *process) ends(limit time.Duration, f func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.done:
			return true
		default:
		}
		if f() {
			return true
		}
	}
	return false
}

// until waits until f is true, or fails the test if the program ends before.
func (p *process) until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(hangTime); !f(); time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("%s: no %s: %v\n%s", p.name, what, p.err, &p.out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: no %s\n%s", p.name, what, &p.out)
		}
	}
}

// says waits until the program has written text.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	p.until(t, fmt.Sprintf("%q", text), func() bool { return strings.Contains(p.out.String(), text) })
}

// listens waits until something in the program's namespace listens on a TCP port.
func (p *process) listens(t *testing.T, port string) {
	t.Helper()
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	p.until(t, "listener on port "+port, func() bool { return testlab.Listens(p.cmd.Process.Pid, n) })
}
