package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"exnet/internal/longtest"
	"exnet/node/control"
)

// spines is what the links of each of two spines have carried, in bytes.
func (c *carried) spines() (sum [2]uint64) {
	c.t.Helper()
	var f control.Topology
	c.tun(0, &f, "topo")
	for _, l := range f.Links { // all are between a leaf, 1 or 2, and a spine, 3 or 4
		sum[max(l.A, l.B)-3] += l.AB.Bytes + l.BA.Bytes
	}
	return sum
}

// A connection has its class by a rule, by the environment, or because the program has set
// the DSCP, also when it is direct already: what it sends goes by the spine that the class
// has, as TCP and as direct sockets through the fabric; what has no class goes by the tables.
func TestRootClass(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tree := file("tree.toml", "nodes = [1, 2, 3, 4]\nlinks = [\"1 3\", \"1 4\", \"2 3\", \"2 4\"]\n")
	c := newCarriedOn(t, false, []string{"--topology", tree}, "--direct", "fabric:"+carriedPort)
	reserve := exec.Command(c.bin+"/exn-tun", "route", "reserve", "--dir", c.dirs[0], "--primitive", "alltoall", "--nodes", "1,2", "--via", "4", "--tag", "10")
	if out, err := reserve.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	try := func(name, path, addr string, want int, client ...string) {
		t.Run(name, func(t *testing.T) {
			k := c.talk(addr, client...)
			k.until(t, "the first megabyte", func() bool { return k.went() > 1<<20 })
			c.path(0, path)
			c.goesBy(t, k, want)
			if err := k.in.Close(); err != nil {
				t.Error(err)
			}
			k.says(t, "\nok ")
			k.wait(t)
		})
		c.clean(0, 1)
	}
	c.serve()
	try("none", "fabric", "10.2.0.2", 3)
	c.server.stop()

	c.serve("EXNET_CLASS=10")
	ten := file("ten", "direct python* client * "+carriedPort+" class=10\n")
	twelve := file("twelve", "direct python* client * "+carriedPort+" class=12\n")
	tcp := file("tcp", "tcp python* client * "+carriedPort+" class=10\n")
	c.run = []string{"--rules", ten}
	try("rule", "fabric", "10.2.0.2", 4)
	try("rule6", "fabric", "fd00:10:2::2", 4)
	c.run = []string{"--rules", tcp}
	try("tcp", "tcp", "10.2.0.2", 4)
	c.run = []string{"--rules", twelve}
	try("program", "fabric", "10.2.0.2", 4, "40")
	try("program6", "fabric", "fd00:10:2::2", 4, "40")
	c.run, c.env = nil, []string{"EXNET_CLASS=10"}
	try("environment", "fabric", "10.2.0.2", 4)
}
