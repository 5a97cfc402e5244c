package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/pattern"
	"exnet/fabric/topo"
	"exnet/internal/longtest"
	"exnet/node/control"
)

// exn runs exn-tun for the nodes of a host, and wants it to print something.
func (c *carried) exn(i int, want string, args ...string) {
	c.t.Helper()
	out, err := exec.Command(c.bin+"/exn-tun", append(args, "--dir", c.dirs[i])...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		c.t.Fatalf("%v: %v, %s, want %q", args, err, out, want)
	}
}

// Routes change under a connection, as direct sockets through the fabric and as TCP, on one
// host and between two: what is sent from then on goes by the new route, and no byte is lost,
// repeated or out of order. The client checks each.
func TestRootRouteChange(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tree := file("tree.toml", "nodes = [1, 2, 3, 4]\nlinks = [\"1 3\", \"1 4\", \"2 3\", \"2 4\"]\n")
	tcp := file("tcp", "tcp python* client * "+carriedPort+"\n")
	for _, tt := range []struct {
		name, path string
		hosts      bool
	}{{"direct", "fabric", false}, {"tcp", "tcp", false}, {"hosts", "fabric", true}} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			c := newCarriedOn(t, tt.hosts, []string{"--topology", tree}, "--direct", "fabric:"+carriedPort)
			if tt.path == "tcp" {
				c.run = []string{"--rules", tcp}
			}
			c.serve()
			k := c.talk("10.2.0.2")
			k.until(t, "the first megabyte", func() bool { return k.went() > 1<<20 })
			c.path(0, tt.path)
			c.goesBy(t, k, 3)
			c.exn(0, "link 1-3 is down on 2 nodes", "set", "link", "1-3", "down")
			c.goesBy(t, k, 4)
			c.exn(1, "link 1-3 is up on 2 nodes", "set", "link", "1-3", "up")
			c.goesBy(t, k, 3)
			c.exn(1, "2 pairs of nodes, 2 with routes of their own, on 2 nodes", "route", "reserve", "--primitive", "alltoall", "--nodes", "1,2", "--via", "4")
			c.goesBy(t, k, 4)
			c.exn(0, "alltoall     2          -      0    -", "route", "list")
			c.exn(0, "", "route", "release", "--id", "alltoall")
			c.goesBy(t, k, 3)
			for range 10 {
				c.exn(0, "is down on 2 nodes", "set", "link", "2-3", "down")
				c.exn(0, "is up on 2 nodes", "set", "link", "2-3", "up")
			}
			c.goesBy(t, k, 3)
			if err := k.in.Close(); err != nil {
				t.Error(err)
			}
			k.says(t, "\nok ")
			k.wait(t)
			c.clean(0, 1)
		})
	}
}

// goesBy checks that what a client's connection carries from now on crosses a spine.
func (c *carried) goesBy(t *testing.T, k *talker, spine int) {
	t.Helper()
	const through = 2 << 20 // bytes, of which what belongs to no connection is no hundredth
	before := c.spines()
	var after [2]uint64
	k.until(t, "bytes over the spines", func() bool {
		after = c.spines()
		after[0], after[1] = after[0]-before[0], after[1]-before[1]
		return after[0]+after[1] > through
	})
	if all := after[0] + after[1]; float64(after[spine-3]) < 0.99*float64(all) {
		t.Errorf("%d of %d bytes by spine %d, want 99 %%", after[spine-3], all, spine)
	}
}

// The matrix of a profile times the routes is what the links have counted, to the byte, also of
// direct sockets through the fabric.
func TestRootProfileIsExact(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarriedOn(t, false, []string{"--topology", "mesh:3x2"}, "--direct", "fabric:"+carriedPort)
	c.serve()
	file := filepath.Join(t.TempDir(), "run.json")
	// quietly does something while nothing crosses a link, and returns what links have carried.
	quietly := func(do ...string) []topo.LinkLoad {
		var loads [2][]topo.LinkLoad
		eventually(t, func() error {
			for i := range loads {
				var now control.Topology
				c.tun(0, &now, "topo")
				var err error
				if _, loads[i], err = now.Build(); err != nil {
					return err
				}
				if i == 0 {
					c.exn(0, "", do...)
				}
			}
			if !slices.Equal(loads[0], loads[1]) {
				return errors.New("the links carry something")
			}
			return nil
		})
		return loads[1]
	}
	before := quietly("profile", "start")
	k := c.talk("10.2.0.2")
	c.through(k, 2<<20)
	c.path(0, "fabric")
	if err := k.in.Close(); err != nil {
		t.Error(err)
	}
	k.says(t, "\nok ")
	k.wait(t)
	c.clean(0, 1)
	after := quietly("profile", "read", "-o", file)

	all, err := pattern.ReadProcesses(file)
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := topo.NewMesh(topo.Dims{3, 2, 1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := topo.NewRoutes(mesh)
	if err != nil {
		t.Fatal(err)
	}
	want := topo.NewLoad(mesh)
	for _, p := range all {
		from := fabric.NodeID(*p.Node)
		for to, bytes := range p.WireBytes {
			routes.Carry(want, from, fabric.NodeID(*all[to].Node), p.WirePackets[to], bytes)
		}
		for _, m := range p.Trees {
			var members []fabric.NodeID
			for _, n := range m.Members {
				members = append(members, fabric.NodeID(n))
			}
			tree, err := routes.Tree(from, members)
			if err != nil {
				t.Fatal(err)
			}
			tree.Carry(want, m.Messages, m.Bytes+16*m.Messages) // a packet each
		}
	}
	if sum := want.Total(); sum.Bytes < 4<<20 {
		t.Errorf("%d bytes in all", sum.Bytes)
	}
	for i := range after {
		if got := after[i].Since(before[i]); got != want.Link(i) {
			t.Errorf("link %v has counted %+v, the profile says %+v", mesh.Links()[i], got, want.Link(i))
		}
	}
}
