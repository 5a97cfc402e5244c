package exntun

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/node/daemon"
	"exnet/test/testlab"
)

func TestTopoBadInput(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(bad, []byte("nodes = [1, 2]\nlinks = [\"1 3\", \"1 1\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"topo --torus 4xx", cli.ExitUsage, "4xx"},
		{"topo --torus 4 --mesh 4", cli.ExitUsage, "one of --torus, --mesh and --file"},
		{"topo --mesh 4 --json -o -", cli.ExitUsage, "one of --json and --output"},
		{"topo --mesh 4 --output=", cli.ExitUsage, "--output: it is empty"},
		{"topo 4x4", cli.ExitUsage, `unexpected argument "4x4"`},
		{"topo --file " + dir + "/none", cli.ExitFailure, "no such file"},
		{"topo --file " + bad, cli.ExitFailure, "bad.toml"},
		{"topo --mesh 4 -o " + dir + "/none/x.svg", cli.ExitFailure, "no such file"},
		{"topo --torus 64x64x15", cli.ExitFailure, "the limit is 4096"},
		{"topo --dir " + dir, cli.ExitFailure, "no node is up"},
		{"up --topology=", cli.ExitUsage, "--topology: it is empty"},
		{"up --topology torus:0", cli.ExitUsage, `--topology: dimensions "0"`},
		{"up --topology torus:4x4 --node 17", cli.ExitUsage, "node 17 is not in the topology (torus 4x4: 16 nodes, 32 links, from 1 to 16)"},
		{"up --topology " + dir + "/none", cli.ExitUsage, "there is no file"},
	} {
		status, stdout, stderr := run(t.Context(), strings.Fields(c.args)...)
		if status != c.status || stdout != "" {
			t.Errorf("%s: status %d, want %d; %s", c.args, status, c.status, stdout)
		}
		oneLineOf(t, stderr, c.want)
	}
}

func TestTopoText(t *testing.T) {
	status, stdout, stderr := run(t.Context(), "topo", "--torus", "4x4x4")
	if status != cli.ExitOK || stderr != "" {
		t.Errorf("status %d, %s", status, stderr)
	}
	golden(t, "topo.txt", stdout)
	file := filepath.Join(t.TempDir(), "x.svg")
	status, stdout, stderr = run(t.Context(), "topo", "--mesh", "3x2", "--svg", file)
	if status != cli.ExitOK || stdout+stderr != "" {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := xml.NewDecoder(f); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// What several nodes have counted is drawn as one.
func TestTopoAdd(t *testing.T) {
	built, err := daemon.ParseTopology("mesh:3x2")
	if err != nil {
		t.Fatal(err)
	}
	routes, err := topo.NewRoutes(built)
	if err != nil {
		t.Fatal(err)
	}
	var f fabricTopology
	for _, n := range []fabric.NodeID{1, 6} {
		l := topo.NewLoad(built)
		routes.Carry(l, n, 7-n, 10*uint64(n), 1360*uint64(n))
		text, err := json.Marshal(control.NewTopology(built, l.Links()))
		if err != nil {
			t.Fatal(err)
		}
		var answer control.Topology
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		if err := f.addAnswer(n, &answer); err != nil {
			t.Fatal(err)
		}
	}
	f.Missing, _ = built.Compare([]fabric.NodeID{1, 3, 6})
	var b strings.Builder
	if err := f.newDrawing().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "topo_load.txt", b.String())
	other, err := daemon.ParseTopology("torus:3x2")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.addAnswer(4, control.NewTopology(other, nil)); err == nil || !strings.Contains(err.Error(), "node 4 has another topology") {
		t.Error(err)
	}
	if err := f.addAnswer(4, nil); err == nil || !strings.Contains(err.Error(), "--topology") {
		t.Error(err)
	}
}

// Three daemons of a mesh of four nodes: what they send crosses the links on its
// way, and is seen there.
func TestRootTopology(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	args := func(addr string, more ...string) []string {
		return append([]string{"--dir", dir, "--topology", "mesh:4", "--addr", addr + "/24"}, more...)
	}
	a := startUp(t, netnstest.New(t), args("10.2.0.1")...)
	b := startUp(t, netnstest.New(t), args("10.2.0.3", "--node", "3")...)
	startUp(t, netnstest.New(t), args("10.2.0.4", "--node", "4")...)
	eventually(t, "ping", func() bool { return pings(a.ns, "10.2.0.3") && pings(a.ns, "10.2.0.4") && pings(b.ns, "10.2.0.4") })
	// This one goes by GET, which node 3 counts.
	const large = 20000
	if status, stdout, stderr := run(t.Context(), "profile", "start", "--dir", dir); status != cli.ExitOK || stdout+stderr != "" {
		t.Fatalf("profile start: %d, %s%s", status, stdout, stderr)
	}
	if err := a.ns.Run(exec.Command("ping", "-c", "1", "-W", "2", "-s", strconv.Itoa(large), "10.2.0.3")); err != nil {
		t.Error(err)
	}

	checkProfile(t, dir, large)
	status, stdout, stderr := run(t.Context(), "topo", "--dir", dir, "--json")
	var f struct {
		control.Topology
		Missing []fabric.NodeID `json:"missing"`
	}
	if err := json.Unmarshal([]byte(stdout), &f); status != cli.ExitOK || err != nil || len(f.Links) != 3 || !slices.Equal(f.Missing, []fabric.NodeID{2}) {
		t.Fatalf("%d, %v: %s%s", status, err, stdout, stderr)
	}
	// All that node 1 sends crosses 1-2 and, but for nothing, 2-3.
	one, two := f.Links[0], f.Links[1]
	if one.A != 1 || one.AB.Bytes < large || one.BA.Bytes < large || one.LinkLoad != two.LinkLoad || f.Links[2].AB.Packets == 0 {
		t.Errorf("links %+v", f.Links)
	}
	if status, stdout, stderr = run(t.Context(), "topo", "--dir", dir); status != cli.ExitOK || !strings.Contains(stdout, "2!") || !strings.Contains(stdout, "1 of 4 nodes") {
		t.Errorf("%d: %s%s", status, stdout, stderr)
	}
	status, stdout, stderr = run(t.Context(), "status", "--dir", dir, "--node", "1", "--json")
	var all []control.Status
	if err := json.Unmarshal([]byte(stdout), &all); status != cli.ExitOK || err != nil || len(all) != 1 || len(all[0].Peers) != 2 {
		t.Fatalf("%d, %v: %s%s", status, err, stdout, stderr)
	}
	if all[0].Topology != "mesh 4: 4 nodes, 3 links" || all[0].Peers[0].Hops != 2 || all[0].Peers[1].Hops != 3 {
		t.Errorf("topology %s, peers %+v", all[0].Topology, all[0].Peers)
	}

	// Who has another topology, or none, does not come up.
	for _, c := range []struct{ flags, want string }{
		{"--topology torus:4", "use the same topology"},
		{"--node 2", "this node has no topology"},
	} {
		cmd, _, errs := programCommand(append([]string{"up", "--dir", dir, "--netns", a.ns.Path()}, strings.Fields(c.flags)...)...)
		if err := cmd.Run(); err == nil {
			t.Errorf("%s is up", c.flags)
		}
		oneLineOf(t, errs.String(), c.want)
	}
	if status, stdout, stderr = run(t.Context(), "down", "--dir", dir); status != cli.ExitOK {
		t.Errorf("down: %d, %s%s", status, stdout, stderr)
	}
}
