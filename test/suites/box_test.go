package suites

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"exnet/test/testlab"
)

// hangTime is when what should take seconds counts as hung.
const hangTime = 5 * time.Minute

// boxScript sets up a box, says so, and holds it until its input ends. $1: a directory that it
// shares with the host, $2: that of exn-run, $3: a checkout, or "". Its bash is the init of the
// box, and reaps.
const boxScript = `set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/held/work /run/held/bin /run/held/checkout /run/overlay
mount --bind "$1" /run/held/work
[ -z "$2" ] || mount --bind "$2" /run/held/bin
if [ -n "$3" ]; then
	mount --bind "$3" /run/held/checkout
	mount -t tmpfs tmpfs /run/overlay
	mkdir /run/overlay/upper /run/overlay/work
	chown --reference="$3" /run/overlay/upper
	chmod --reference="$3" /run/overlay/upper
fi
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$1" "${2:-/tmp}" "${3:-/tmp}"
mount --bind /run/held/work "$1"
[ -z "$2" ] || mount --bind /run/held/bin "$2"
[ -z "$3" ] || mount -t overlay -o lowerdir=/run/held/checkout,upperdir=/run/overlay/upper,workdir=/run/overlay/work overlay "$3"
ip link set lo up
echo ready
cat >/dev/null <&0 &
wait $!`

// box is a set of namespaces, in which programs run, and a directory, which it shares with the
// host.
type box struct {
	cmd   *exec.Cmd
	input io.Closer
	pid   int    // of its first process, as the host sees it
	dir   string // shared, writable by all users
	mode  mode
	timed bool // no reports, which take time: exn-run stays and reads the statistics of each connection

	mu      sync.Mutex
	reports []string
}

// newBox makes a box. checkout is a directory that its programs may change without changing it, or
// "".
func newBox(m mode, checkout string) (*box, error) {
	bin := ""
	if m != plain {
		path, err := buildExnRun()
		if err != nil {
			return nil, err
		}
		bin = filepath.Dir(path)
	}
	dir, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return nil, err
	}
	b := &box{mode: m, dir: dir}
	if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), b.start(bin, checkout)); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *box) start(bin, checkout string) error {
	b.cmd = exec.Command("unshare", "-n", "-m", "-i", "-p", "-f", "--kill-child", "--mount-proc", "--propagation", "private",
		"bash", "-c", boxScript, "box", b.dir, bin, checkout)
	var said bytes.Buffer
	b.cmd.Stderr = &said
	in, err := b.cmd.StdinPipe()
	if err != nil {
		return err
	}
	b.input = in
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		_ = b.cmd.Wait() // said has the reason
		return fmt.Errorf("making namespaces: %w: %s", err, strings.TrimSpace(said.String()))
	}
	b.pid, err = onlyChild(b.cmd.Process.Pid)
	return err
}

// close ends all that is in the box and removes its directory.
func (b *box) close() {
	if b.cmd != nil && b.cmd.Process != nil {
		_ = b.cmd.Process.Kill() // --kill-child: its init goes with it, and all others with that
		b.input.Close()
		_ = b.cmd.Wait() // killed
	}
	os.RemoveAll(b.dir)
}

// onlyChild returns the process that pid has started. Its process IDs are those of the caller's
// namespace.
func onlyChild(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text))
	if len(f) != 1 {
		return 0, fmt.Errorf("process %d has %d children, want 1", pid, len(f))
	}
	return strconv.Atoi(f[0])
}

// program is what runs in a box.
type program struct {
	name string
	cmd  *exec.Cmd
	out  testlab.Output
	done chan struct{} // closed when it has ended
	err  error         // valid then
}

// newReport is where the next program is to report; "": nowhere.
func (b *box) newReport() string {
	if b.timed {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	report := filepath.Join(b.dir, fmt.Sprintf("report%d", len(b.reports)))
	b.reports = append(b.reports, report)
	return report
}

// run starts a program in the box, in the mode of the box; dir "" is the box's own, env is added to
// the environment.
func (b *box) run(dir string, env, argv []string) (*program, error) {
	argv, err := b.mode.argv(b.newReport(), argv)
	if err != nil {
		return nil, err
	}
	return b.enter(dir, env, argv)
}

// enter starts a program in the box as it is.
func (b *box) enter(dir string, env, argv []string) (*program, error) {
	if dir == "" {
		dir = b.dir
	}
	full := append([]string{"-t", strconv.Itoa(b.pid), "-n", "-m", "-i", "-p", "--wdns=" + dir, "--"}, argv...)
	p := &program{name: strings.Join(argv, " "), cmd: exec.Command("nsenter", full...), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "LC_ALL=C", "TMPDIR=/tmp", "HOME="+b.dir), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.WaitDelay = time.Second
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		if errors.Is(p.err, exec.ErrWaitDelay) {
			p.err = nil // a process that it left behind holds its output
		}
		close(p.done)
	}()
	return p, nil
}

// signal sends sig to the program: nsenter's only child.
func (p *program) signal(sig syscall.Signal) {
	if pid, err := onlyChild(p.cmd.Process.Pid); err == nil {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

// wait waits for the end of the program; hung says that it did not come in time, and that the
// program was ended.
func (p *program) wait(ctx context.Context) (hung bool) {
	select {
	case <-p.done:
		return false
	case <-ctx.Done():
	}
	p.signal(syscall.SIGTERM) // exn-run passes it on, and reports
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill() // the box ends the rest
		<-p.done
	}
	return true
}
