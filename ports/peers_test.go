package ports

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// process is a test program that runs.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
	name  string
}

// start starts a test program at a node, which is killed when the test ends, or after two
// minutes.
func (n *node) start(t *testing.T, kind string, args ...string) *process {
	t.Helper()
	return n.startProgram(t, strings.Join(args, " "), "", testProgram(t, kind, args[0]), args[1:]...)
}

// startProgram is start of any program, with one more variable in its environment.
func (n *node) startProgram(t *testing.T, name, env, path string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	p := &process{Cmd: exec.CommandContext(ctx, path, args...), name: name}
	p.Env = append(os.Environ(), "EXN_PORTS="+n.processes)
	if env != "" {
		p.Env = append(p.Env, env)
	}
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	t.Cleanup(func() {
		cancel()
		_ = p.Wait() // it may have been waited for
	})
	return p
}

// line waits for a line of the program; "": it has ended.
func (p *process) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// last returns the program's last line, and checks that it ended well.
func (p *process) last(t *testing.T) (text string) {
	t.Helper()
	for p.lines.Scan() {
		text = p.lines.Text()
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("%s: %v, last line %q", p.name, err, text)
	}
	return text
}

// Whoever is killed, at whatever moment: the other is told, and nothing of it stays.
func TestKilled(t *testing.T) {
	for _, there := range []int{0, 1} {
		t.Run(fmt.Sprintf("node %d to 1", there+1), func(t *testing.T) {
			all := nodes(t, 2)
			for i := range 10 {
				server := all[0].start(t, "plain", "peers", "serve")
				args := append([]string{"peers", "hammer"}, strings.Fields(server.line())...)
				if len(args) != 6 {
					t.Fatalf("the server said %q", args)
				}
				client := all[there].start(t, "plain", args...)
				if i >= 4 {
					client.line() // it is connected
				}
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				victim, other := server, client
				if i%2 == 1 {
					victim, other = client, server
				}
				if err := victim.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				if victim == client && len(all[0].Ports()) > 0 && client.Wait() != nil && !wasPaired(all[0], server) {
					_ = server.Process.Kill() // it had no peer, and waits for one
					continue
				}
				if got := other.last(t); got != "gone" && got != "refused" {
					t.Fatalf("round %d: the other said %q", i, got)
				}
			}
			for _, n := range all {
				n.idle(t)
			}
		})
	}
}

// wasPaired waits until the server of a test has seen a peer, or has none any more. It may have
// ended since.
func wasPaired(n *node, p *process) bool {
	for _, i := range n.Ports() {
		if i.PID == p.Process.Pid && i.Unit == "rma" {
			return i.Counters.Received > 0
		}
	}
	return true
}

// When the node ends its processes are told.
func TestNodeEnds(t *testing.T) {
	all := nodes(t, 2)
	server := all[0].start(t, "plain", "peers", "serve", "2")
	client := all[1].start(t, "plain", append([]string{"peers", "hammer"}, strings.Fields(server.line())...)...)
	client.line()
	all[0].Close()
	if got := server.last(t); got != "node gone" && got != "gone" {
		t.Errorf("the server said %q", got)
	}
	if got := client.last(t); got != "gone" {
		t.Errorf("the client said %q", got)
	}
	all[1].idle(t)
}

// A process that writes anything to all that it was granted hurts neither its peer nor the
// node, nor other processes.
func TestHostile(t *testing.T) {
	all := nodes(t, 2)
	for seed := range 4 {
		server := all[0].start(t, "asan", "peers", "serve", "2")
		to := strings.Fields(server.line())
		honest := all[0].start(t, "plain", append([]string{"peers", "hammer"}, to...)...)
		honest.line()
		liar := all[seed%2].start(t, "plain", append([]string{"peers", "lie", fmt.Sprint(seed)}, to...)...)
		if got := liar.last(t); got != "done" {
			t.Fatalf("the liar said %q", got)
		}
		// The honest one goes on.
		before := sent(all[0], honest)
		for deadline := time.Now().Add(time.Minute); sent(all[0], honest) < before+20; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("seed %d: the honest process has stopped", seed)
			}
		}
		_ = honest.Process.Kill()
		if got := server.last(t); got != "gone" {
			t.Fatalf("seed %d: the server said %q", seed, got)
		}
	}
	for _, n := range all {
		n.idle(t)
	}
}

// sent is how many RMA operations a process has done.
func sent(n *node, p *process) uint64 {
	for _, i := range n.Ports() {
		if i.PID == p.Process.Pid && i.Unit == "rma" {
			return i.Counters.Sent
		}
	}
	return 0
}
