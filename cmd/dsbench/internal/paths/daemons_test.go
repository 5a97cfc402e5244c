package paths

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/fabric/link/ofi"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// openPath opens a path by its name.
func openPath(t *testing.T, name string, c NodeConfig) Path {
	t.Helper()
	k, err := KindOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return k.Open(c)
}

// TestRootDaemons: bytes pass, the direct way too, which the measurement itself checks, and both
// nodes' CPU time counts.
func TestRootDaemons(t *testing.T) {
	benchtest.RequireExn(t)
	for _, name := range []string{"exn-shm", "exn-stream", "exn-ofi", "ds-fabric"} {
		t.Run(name, func(t *testing.T) {
			if name == "exn-ofi" {
				if err := ofi.Check(t.Context(), "tcp"); errors.Is(err, ofi.ErrMissing) {
					t.Skip(err)
				}
			}
			left := benchtest.Temporary(t)
			netnstest.CheckFDs(t)
			p := openPath(t, name, NodeConfig{})
			if err := p.Setup(t.Context()); err != nil {
				t.Fatal(err)
			}
			daemons := p
			if s, ok := p.(specPath); ok {
				daemons = s.Path
			}
			nodes := daemons.(*daemonPath).nodes
			spec := aMinute()
			spec.Duration = 50 * time.Millisecond
			for _, spec.Kind = range []tcpbench.Kind{tcpbench.PingPong, tcpbench.Stream} {
				r, err := p.Measure(t.Context(), spec)
				if err != nil || r.Bytes == 0 || len(nodes) != 2 {
					t.Errorf("%+v of %d nodes: %v", r, len(nodes), err)
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if l := left(); len(l) > 0 {
				t.Errorf("left behind: %v", l)
			}
		})
	}
}

// TestRootDaemonDies: a measurement under way ends at once, says why, and leaves nothing, whichever
// node it is, of one host or of two.
func TestRootDaemonDies(t *testing.T) {
	benchtest.RequireExn(t)
	for _, name := range []string{"exn-shm", "exn-stream"} {
		for victim := range 2 {
			t.Run(fmt.Sprint(name, victim), func(t *testing.T) {
				left := benchtest.Temporary(t)
				netnstest.CheckFDs(t)
				p := openPath(t, name, NodeConfig{}).(*daemonPath)
				if err := p.Setup(t.Context()); err != nil {
					t.Fatal(err)
				}
				timer := time.AfterFunc(100*time.Millisecond, p.nodes[victim].Kill)
				defer timer.Stop()
				noticesDeath(t, p)
				if l := left(); len(l) > 0 {
					t.Errorf("left behind: %v", l)
				}
			})
		}
	}
}

func TestDaemonSetupFails(t *testing.T) {
	for _, name := range []string{"exn-shm", "exn-stream"} {
		t.Run(name, func(t *testing.T) {
			left := benchtest.Temporary(t)
			netnstest.CheckFDs(t)
			failsInOrder(t, openPath(t, name, NodeConfig{MTU: 1})) // what the options do not let through
			if l := left(); len(l) > 0 {
				t.Errorf("left behind: %v", l)
			}
		})
	}
}
