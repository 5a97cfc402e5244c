package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

var (
	disturbed     = flag.Duration("disturbed", 20*time.Second, "`how long` each kind of libfabric's traffic runs while links are cut, or nodes stopped")
	disturbedSeed = flag.Uint64("disturbed-seed", 1, "the first `seed` of that traffic")
	disturbedBy   = flag.String("disturbed-provider", "exnet", "the `provider` of that traffic; the control is tcp, over exn0")
)

// jobTime is how long one MPI job of many rounds communicates.
const jobTime = 40 * time.Second

// disturb does things to the way between the nodes every 0.1 to 3 s, until the function that it
// returns is called: that returns how many it did. Between hosts it cuts the link; on one host it
// stops a node for up to 0.3 s.
func (c *carried) disturb(hosts bool) (end func() int) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var done sync.WaitGroup
	n := 0
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100*time.Millisecond + rand.N(2900*time.Millisecond)):
			}
			if c.disturbOnce(hosts) {
				n++
			}
		}
	})
	return sync.OnceValue(func() int {
		cancel()
		done.Wait()
		return n
	})
}

// disturbOnce returns whether there was something to disturb.
func (c *carried) disturbOnce(hosts bool) bool {
	if hosts {
		out, err := runIn(c.t, c.spaces[0], nil, "ss", "-HK", "( sport = :4791 or dport = :4791 )")
		if err != nil {
			c.t.Errorf("%v: %s", err, out)
		}
		return strings.TrimSpace(out) != ""
	}
	pid := c.nodes[rand.IntN(len(c.nodes))].cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		c.t.Error(err)
		return false
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		c.t.Error(err)
	}
	return true
}

// job is one run of a program of ranks: what it said, and whether it did not end.
type job struct {
	said string
	err  error
	hung bool
}

func (l *mpiLab) job(t *testing.T, m mpi, argv []string) job {
	t.Helper()
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	p := m.launch(t, here, l, argv)
	select {
	case <-p.done:
		return job{said: p.out.String(), err: p.err}
	case <-time.After(jobTime + hangTime):
		p.stop()
		return job{said: p.out.String(), err: errors.New("it does not end"), hung: true}
	}
}

// Ranks of Open MPI with checked data, 2 to 8 of them, while the way between their nodes is
// disturbed: jobs with windows and with threads in turns, for as long as -disturbed says.
func TestRootLibfabricDisturbedMPI(t *testing.T) {
	longtest.Nightly(t)
	needRun(t, "make", "mpirun.openmpi", "mpicc.openmpi", "ss")
	checkLeaks(t)
	for _, hosts := range []bool{true, false} {
		t.Run(map[bool]string{true: "hosts", false: "host"}[hosts], func(t *testing.T) {
			c, env := newCarried(t, hosts), fabricOf(t)
			l := &mpiLab{spaces: c.spaces[:], nodes: []string{"10.2.0.1", "10.2.0.2"}}
			program := filepath.Join(sharedDir(t), "mixed")
			cc := exec.CommandContext(t.Context(), "mpicc.openmpi", "-O2", "-pthread", "-o", program, "testdata/mpi/mixed.c")
			if out, err := cc.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			end := c.disturb(hosts)
			defer end()
			rounds, wrong, hung, failed := 0, 0, 0, 0
			seed := *disturbedSeed
			begun := time.Now()
			for ; time.Since(begun) < *disturbed; seed++ {
				m := openMPIBy(*disturbedBy, env, int(2+seed%7))
				kernels := []string{"vhtrw", "vhtrm"}[seed%2]
				seconds := min(jobTime, max(time.Second, *disturbed-time.Since(begun))).Seconds()
				j := l.job(t, m, []string{"--mca", "osc", "pt2pt", program, fmt.Sprintf("%.0f", seconds), strconv.FormatUint(seed, 10), kernels})
				n := 0
				if _, after, ok := strings.Cut(j.said, "ranks, "); ok {
					_, _ = fmt.Sscan(after, &n)
				}
				rounds += n
				t.Logf("%v: seed %d, %d ranks, %s: %d rounds, %v", time.Since(begun).Round(time.Second), seed, m.ranks, kernels, n, j.err)
				switch {
				case strings.Contains(j.said, "wrong") || strings.Contains(j.said, "WRONG"):
					wrong++
				case j.hung:
					hung++
				case j.err != nil:
					failed++
				default:
					continue
				}
				t.Errorf("seed %d, %d ranks, %s: %v\n%s", seed, m.ranks, kernels, j.err, j.said)
			}
			t.Logf("%v, %d disturbances, %d jobs, %d rounds: %d wrong, %d hung, %d failed",
				time.Since(begun).Round(time.Second), end(), seed-*disturbedSeed, rounds, wrong, hung, failed)
		})
	}
}

// fi_pingpong with checked data, of messages and of tagged ones by ofi_rxm, in all its sizes,
// between hosts whose link is cut: again and again, for as long as -disturbed says.
func TestRootLibfabricDisturbed(t *testing.T) {
	longtest.Nightly(t)
	needRun(t, "make", "fi_pingpong", "ss")
	checkLeaks(t)
	c, env := newCarried(t, true), fabricOf(t)
	l := &mpiLab{spaces: c.spaces[:], nodes: []string{"10.2.0.1", "10.2.0.2"}}
	end := c.disturb(true)
	defer end()
	begun, runs := time.Now(), 0
	for ; time.Since(begun) < *disturbed; runs++ {
		argv := [][]string{{"-p", *disturbedBy, "-e", "msg"}, {"-p", *disturbedBy + ";ofi_rxm", "-e", "rdm"}}[runs%2]
		server, client := l.pingpong(t, env, append(argv, "-c", "-I", "50", "-S", "all")...)
		client.wait(t)
		server.wait(t)
	}
	t.Logf("%v, %d cuts, %d runs, all right", time.Since(begun).Round(time.Second), end(), runs)
}
