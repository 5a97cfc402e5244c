package directsockets_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// TestAllocs: no call allocates, whether it sleeps or not.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, spin := range []time.Duration{0, -1} {
		for _, size := range []int{1, 64, 4096, 65536} {
			t.Run(fmt.Sprintf("spin=%d/size=%d", spin, size), func(t *testing.T) {
				cfg := directsockets.Config{Broker: startBroker(t), Eager: true, Spin: spin}
				c, s := pair(t, cfg, cfg)
				makeDirect(t, c, s)
				go func() {
					buf := make([]byte, size)
					for {
						if _, err := io.ReadFull(s, buf); err != nil {
							return
						}
						if _, err := s.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size)
				round := func() {
					if _, err := c.Write(buf); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						t.Fatal(err)
					}
				}
				for range 100 {
					round()
				}
				sleeps := counter(c, segment.Sleeps)
				least := testing.AllocsPerRun(200, round)
				for i := 0; i < 4 && least > 0; i++ { // the runtime's own
					least = min(least, testing.AllocsPerRun(200, round))
				}
				if least > 0 {
					t.Errorf("%v allocations", least)
				}
				if spin < 0 && counter(c, segment.Sleeps) == sleeps {
					t.Error("did not sleep")
				}
				c.SetDeadline(time.Now().Add(time.Hour))
				if n := testing.AllocsPerRun(200, func() { c.SetDeadline(time.Now().Add(time.Hour)) }); n > 0 {
					t.Errorf("%v allocations for a deadline", n)
				}
			})
		}
	}
}

var idle = flag.Int("idle", 500, "idle connections for TestIdle")

// TestIdle: what idle connections, all with a reader that waits, cost.
func TestIdle(t *testing.T) {
	n := *idle
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if need := uint64(5*n + 200); old.Cur < need {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: need, Max: max(old.Max, need)}); err != nil {
			t.Skipf("needs %d descriptors: %v", need, err)
		}
		defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	}
	p := newPairs(t, directsockets.Config{Broker: startBroker(t), Eager: true})
	var conns []*directsockets.Conn
	var readers sync.WaitGroup
	defer func() {
		for _, c := range conns {
			c.Close()
		}
		readers.Wait()
	}()
	before, goroutines := memory(t)
	for range n {
		c, s := p.next(t)
		makeDirect(t, c, s)
		for range 20 { // a life of some requests
			for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
				if _, err := way[0].Write(make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		conns = append(conns, c, s)
	}
	for _, c := range conns {
		readers.Go(func() {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("read something")
			}
		})
	}
	eventually(t, "all sleep", func() bool {
		for _, c := range conns {
			if counter(c, segment.Sleeps) == 0 {
				return false
			}
		}
		return true
	})
	after, goroutines2 := memory(t)
	each := (after - before) / int64(2*n)
	if each > 64<<10 && !raceEnabled {
		t.Errorf("%d bytes touched for each end", each)
	}
	if extra := goroutines2 - goroutines - 2*n; extra > 10 {
		t.Errorf("%d goroutines more than readers", extra)
	}
	// What the readers did would go on; what they have left behind ends.
	var used time.Duration
	for range 10 {
		cpu := cpuTime(t)
		time.Sleep(time.Second)
		if used = cpuTime(t) - cpu; used <= 100*time.Millisecond {
			break
		}
	}
	if used > 100*time.Millisecond {
		t.Errorf("%v of CPU time in a second", used)
	}
	t.Logf("%d connections, both ends here: %d bytes touched for each end, %v of CPU time in a second", n, each, used)
}

// memory is what the process has touched and not given back, in bytes, and its goroutines.
func memory(t *testing.T) (bytes int64, goroutines int) {
	t.Helper()
	debug.FreeOSMemory() // garbage of other tests is none of ours
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		for _, name := range []string{"RssAnon:", "RssShmem:"} {
			if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
				var kb int64
				if _, err := fmt.Sscan(rest, &kb); err != nil {
					t.Fatal(err)
				}
				bytes += kb << 10
			}
		}
	}
	return bytes, runtime.NumGoroutine()
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
