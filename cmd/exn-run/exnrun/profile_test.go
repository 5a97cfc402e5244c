package exnrun

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exnet/directsockets/broker/connstats"
	"exnet/fabric/pattern"
)

func sent(local, remote string, second int64, bytes uint64) sentBy {
	return sentBy{netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote), time.Unix(second, 0), bytes, bytes / 10}
}

// The matrix finds the other end of each connection: by its time where a port was used
// again, in its own namespace for loopback addresses, and nowhere for what was not seen.
func TestProfileMatrix(t *testing.T) {
	all := []*profiled{
		{Host: "a", Net: 1, PID: 7, Rank: new(0), Ends: []sentBy{
			sent("10.0.0.1:50", "10.0.0.2:60", 1, 100), sent("10.0.0.1:50", "10.0.0.2:60", 9, 1000),
			sent("10.0.0.1:51", "192.0.2.1:80", 1, 5000),
		}},
		{Host: "b", Net: 2, PID: 7, Rank: new(1), Ends: []sentBy{sent("10.0.0.2:60", "10.0.0.1:50", 1, 30), sent("127.0.0.1:5", "127.0.0.1:6", 1, 70)}},
		{Host: "b", Net: 2, PID: 8, Ends: []sentBy{sent("10.0.0.2:60", "10.0.0.1:50", 9, 40), sent("127.0.0.1:6", "127.0.0.1:5", 1, 90)}},
		{Host: "c", Net: 3, PID: 9, Ends: []sentBy{sent("127.0.0.1:6", "127.0.0.1:5", 1, 11)}}, // another loopback
	}
	list := matrixOf(all)
	want := [][]uint64{{0, 100, 1000, 0}, {30, 0, 70, 0}, {40, 90, 0, 0}, {0, 0, 0, 0}}
	for i, p := range list {
		if diff := cmp.Diff(want[i], p.TxBytes); diff != "" {
			t.Errorf("rank %d: %s", i, diff)
		}
		for j := range want {
			if p.RxBytes[j] != want[j][i] || p.TxMessages[j] != want[i][j]/10 {
				t.Errorf("rank %d has %d bytes from %d, and %d messages to it", i, p.RxBytes[j], j, p.TxMessages[j])
			}
		}
	}
	if _, _, err := pattern.Join(list); err != nil {
		t.Error(err)
	}
}

// What several exn-run's write into a directory is one matrix, MPI's ranks first.
func TestProfileDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "run")
	for i, c := range []connstats.Connection{
		{PID: 1, Program: "server", Local: netip.MustParseAddrPort("127.0.0.1:5"), Remote: netip.MustParseAddrPort("127.0.0.1:6"), Sent: connstats.Traffic{DirectBytes: 1, ShadowBytes: 2, VELOLast: 3, RMAInfo: 4}},
		{PID: 2, Program: "client", Local: netip.MustParseAddrPort("127.0.0.1:6"), Remote: netip.MustParseAddrPort("127.0.0.1:5"), Sent: connstats.Traffic{DirectBytes: 5}},
	} {
		p, err := newProfiler(dir)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			p.mu.Lock()
			p.ranks[2] = 0
			p.mu.Unlock()
		}
		if err := p.addSeen(options{dir: t.TempDir()}, &watch{conns: map[seenKey]*connstats.Connection{{}: &c}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := pattern.ReadProcesses(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || !strings.HasSuffix(all[0].Name, " client[2]") || all[0].TxBytes[1] != 5 || all[1].TxBytes[0] != 3 || all[0].RxMessages[1] != 7 {
		t.Errorf("%+v", all)
	}
	// What is no such file there is named.
	bad := filepath.Join(dir, "x"+profileSeen)
	if err := os.WriteFile(bad, []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := newProfiler(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.addSeen(options{dir: dir}, &watch{}); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("%v", err)
	}
	if _, err := newProfiler(bad); err == nil {
		t.Error("a file is taken for a directory")
	}
}

// The rank of a process is what its MPI library has put into its environment.
func TestProfileRank(t *testing.T) {
	if os.Getenv("OMPI_COMM_WORLD_RANK") != "" {
		t.Skip("runs under MPI")
	}
	p := &profiler{ranks: make(map[int]int)}
	p.notePID(os.Getpid())
	p.notePID(1 << 30) // nobody
	if len(p.ranks) != 0 {
		t.Errorf("ranks %v", p.ranks)
	}
	text, err := json.Marshal(profiled{Rank: new(0)})
	if err != nil || !strings.Contains(string(text), `"rank":0`) {
		t.Errorf("%s, %v", text, err)
	}
}
