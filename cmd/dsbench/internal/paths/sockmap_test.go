package paths

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// sockmap sets the path up, or skips the test.
func sockmap(t *testing.T) *sockmapPath {
	t.Helper()
	netnstest.Require(t)
	netnstest.CheckFDs(t)
	p := &sockmapPath{}
	if err := p.Setup(t.Context()); err != nil {
		if strings.Contains(err.Error(), "BPF takes root") || strings.Contains(err.Error(), "not supported") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func sockmapSpec(t *testing.T, k tcpbench.Kind, streams int) tcpbench.Spec {
	return tcpbench.Spec{
		Kind: k, Size: 4096, Streams: streams, Duration: 20 * time.Millisecond, Warmup: 5 * time.Millisecond,
		Congestion: benchtest.Congestion(t), CPUs: tcpbench.Anywhere(),
	}
}

func TestBPFError(t *testing.T) {
	if err := bpfError(fmt.Errorf("map create: %w", unix.EPERM)); !strings.Contains(err.Error(), "run as root") {
		t.Error(err)
	}
	if err := bpfError(unix.ENOSPC); err != unix.ENOSPC {
		t.Error(err)
	}
}

// What sockets of the map send is handed over, of one connection and of several.
func TestRootSockmap(t *testing.T) {
	p := sockmap(t)
	for _, spec := range []tcpbench.Spec{sockmapSpec(t, tcpbench.Stream, 1), sockmapSpec(t, tcpbench.Stream, 3), sockmapSpec(t, tcpbench.PingPong, 1)} {
		if r, err := p.Measure(t.Context(), spec); err != nil || r.Bytes <= 0 || r.CPU <= 0 {
			t.Errorf("%s, %d at once: %+v, %v", spec.Kind, spec.Streams, r, err)
		}
	}
}

// A row whose bytes went over TCP is none.
func TestRootSockmapOverTCPFails(t *testing.T) {
	p := sockmap(t)
	without, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.SockHash, KeySize: 8, ValueSize: 8, MaxEntries: 16})
	if err != nil {
		t.Fatal(err)
	}
	p.sockets.Close()
	p.sockets = without // it has no program
	_, err = p.Measure(t.Context(), sockmapSpec(t, tcpbench.Stream, 1))
	if err == nil || !strings.Contains(err.Error(), "sockmap was not used: of ") {
		t.Errorf("error %v", err)
	}
}
