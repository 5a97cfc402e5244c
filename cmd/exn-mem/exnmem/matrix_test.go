package exnmem

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// asNode has the test's program be node N of two in folder DIR: "N DIR". Node 1 lends lentAll.
const (
	asNode  = "EXNMEM_TEST_NODE"
	lentAll = 64 << 20
)

func serveNode(where string) int {
	var n int
	var dir string
	if _, err := fmt.Sscan(where, &n, &dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if err := pooltest.Serve(ctx, dir, n, 2, pool.Limits{Lend: int64(n) * lentAll}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// working is a program that makes a file at each moment of its life. It has three times its share,
// in which python itself fits.
const working = `
import hashlib, os, sys
def at(moment): open(os.path.join(sys.argv[1], moment), 'w').close()
at('begun')
b = bytearray()
for i in range(24):
    b += hashlib.sha256(b'%d' % i).digest() * 32768
    if i == 12: at('filling')
at('filled')
for round in range(6):
    for i in range(0, len(b), 4096): b[i] ^= i >> 12 & 255
    if round == 2: at('working')
print(hashlib.sha256(b).hexdigest())
at('done')
`

// matrix is what cells have in common.
type matrix struct {
	want string // what the program writes
}

// startNode runs a node.
func startNode(t *testing.T, dir string, n int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", asNode, n, dir))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// lendsAll waits until all that node 1 lends can be borrowed, and is zeros: nobody has any of it.
func lendsAll(t *testing.T, dir string) {
	t.Helper()
	node := 1
	await(t, "a lease of all that there is", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		s, err := memory.Borrow(ctx, memory.Config{Socket: pooltest.SocketIn(dir, 0), Size: lentAll})
		if err != nil {
			return false
		}
		b := make([]byte, 1<<20)
		for off := int64(0); off < lentAll; off += int64(len(b)) {
			if _, err := s.ReadAt(b, off); err != nil || bytes.Count(b, []byte{0}) != len(b) {
				t.Errorf("at %d of node %d: not zeros, %v", off, node, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return true
	})
}

// cell kills the victim some time after the moment, and checks what becomes of the program.
func (m matrix) cell(t *testing.T, victim, moment string, after time.Duration) {
	dir := t.TempDir()
	nodes := []*exec.Cmd{startNode(t, dir, 0), startNode(t, dir, 1)}
	lendsAll(t, dir) // and so both are there
	cmd := exnMem(t, "run", "--local", "8M", "--remote", "60M", "--", "python3", "-c", working, dir)
	cmd.Env = append(cmd.Env, "EXN_MEMORY="+pooltest.SocketIn(dir, 0))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 2 * time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	reached := func() bool {
		select {
		case <-ended:
			return true
		default:
			return moment == "start" || exists(filepath.Join(dir, moment))
		}
	}
	await(t, "the moment", reached)
	time.Sleep(after)
	switch victim {
	case "pager":
		_ = cmd.Process.Kill() // or it has ended
	case "program":
		killChild(cmd.Process.Pid)
	case "node":
		_ = nodes[0].Process.Kill()
	case "lender":
		_ = nodes[1].Process.Kill()
	}
	<-ended
	m.check(t, victim, cmd, stdout.String(), stderr.String())
	for i, v := range []string{"node", "lender"} {
		if v == victim {
			_ = nodes[i].Wait()
			startNode(t, dir, i)
		}
	}
	lendsAll(t, dir)
}

// killChild kills the child of a process, if it has one.
func killChild(pid int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var child int
	if _, err := fmt.Sscan(string(text), &child); err == nil {
		_ = unix.Kill(child, unix.SIGKILL)
	}
}

// check looks at how the program has ended: right and silent, or killed with a line, and never with
// wrong bytes.
func (m matrix) check(t *testing.T, victim string, cmd *exec.Cmd, stdout, stderr string) {
	t.Helper()
	if stdout != "" && stdout != m.want {
		t.Errorf("wrong bytes: %q, want %q", stdout, m.want)
	}
	status, lines := cmd.ProcessState.ExitCode(), strings.Count(stderr, "\n")
	killed := false
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		killed = ws.Signaled() && ws.Signal() == unix.SIGKILL
	}
	right := status == 0 && stdout == m.want && stderr == ""
	switch victim {
	case "pager": // each process of its program, if there is one already, says a line
		right = right || killed && lines == strings.Count(stderr, "exn-mem: the pager has ended")
	case "program":
		right = right || status == 128+int(unix.SIGKILL) && stderr == ""
	case "node", "lender": // before there is a lease it is refused
		lost := status == 128+int(unix.SIGBUS) || status == 0 && stdout == m.want
		right = right || lines == 1 && strings.HasPrefix(stderr, "exn-mem: ") && (lost || status == exitFailure)
	}
	if !right {
		t.Errorf("%v, %q\n%s", cmd.ProcessState, stdout, stderr)
	}
}

// Whoever is killed with -9 at whatever moment of a program's life: it ends, rightly or by a signal
// with a line that says why, and all memory can be borrowed again afterwards.
func TestKillMatrix(t *testing.T) {
	needPaging(t)
	longtest.Skip(t)
	runs := map[string][]string{"pager": {"working"}, "program": {"working"}, "node": {"working"}, "lender": {"working"}}
	turns := 1
	if longtest.All() {
		turns = 5
		for v := range runs {
			runs[v] = []string{"start", "begun", "filling", "filled", "working", "done"}
		}
	}
	dir := t.TempDir()
	want, err := exec.CommandContext(t.Context(), "python3", "-c", working, dir).Output()
	if err != nil {
		t.Skip(err)
	}
	m := matrix{string(want)}
	for turn := range turns {
		for victim, moments := range runs {
			for _, moment := range moments {
				after := time.Duration(turn) * time.Duration(rand.IntN(30)) * time.Millisecond
				t.Run(fmt.Sprintf("%s/%s+%v", victim, moment, after), func(t *testing.T) { m.cell(t, victim, moment, after) })
			}
		}
	}
}
