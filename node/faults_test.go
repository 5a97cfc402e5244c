package node

import (
	"strings"
	"testing"
	"time"

	"exnet/fabric/link/wire"
	"exnet/internal/counter"
)

// wires adds up the counters of the links of a node by their names.
func wires(c counter.List) map[string]uint64 {
	sum := make(map[string]uint64)
	for _, e := range c {
		if rest, ok := strings.CutPrefix(e.Name, "wire."); ok {
			_, name, _ := strings.Cut(rest, ".")
			sum[name] += e.Value
		}
	}
	return sum
}

// Over bad links programs find what they find over good ones; the links have work with it.
func TestRootFaults(t *testing.T) {
	for name, f := range map[string]wire.Faults{
		"none": {},
		"all":  {Seed: 1, Drop: 0.01, Corrupt: 0.005, Duplicate: 0.005, Reorder: 0.005},
		"slow": {Seed: 2, Drop: 0.001, Delay: 200 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, ClusterConfig{Nodes: 3, Faults: &f})
			for i := range c.Nodes {
				for j := range c.Nodes {
					for _, to := range addrs(j) {
						if i == j {
							continue
						}
						if err := ping(c.Namespace(i), to, 3000, 30*time.Second); err != nil {
							t.Errorf("node %d: %v", 1+i, err)
						}
					}
				}
			}
			transfer(t, c, addrs(1)[0], 1<<20)
			sum := make(map[string]uint64)
			for i := range c.Nodes {
				for name, v := range wires(c.Counters(i)) {
					sum[name] += v
				}
			}
			t.Log(sum)
			want := []string{"packets", "received"}
			if f.Drop > 0 {
				want = append(want, "retransmitted", "replays", "out_of_order")
			}
			for _, name := range want {
				if sum[name] == 0 {
					t.Errorf("%s: 0", name)
				}
			}
			if (sum["crc_errors"] > 0) != (f.Corrupt > 0) || sum["downs"] != 0 {
				t.Errorf("crc_errors: %d, downs: %d", sum["crc_errors"], sum["downs"])
			}
		})
	}
}

// Without faults there is no machinery.
func TestRootNoFaults(t *testing.T) {
	c := startCluster(t, ClusterConfig{})
	if w := wires(c.Counters(0)); len(w) != 0 {
		t.Error(w)
	}
}
