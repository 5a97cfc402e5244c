package exntun

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/netns/netnstest"
	"exnet/node/daemon"
	"exnet/test/testlab"
)

// The whole way of docs/route.md, small: four nodes in namespaces, traffic, its profile, routes
// of its own, the same traffic again, and a page with all of it.
func TestRootRoutePage(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	work := t.TempDir()
	dir := filepath.Join(work, "lab")
	var nodes []*upNode
	for i := range 4 {
		nodes = append(nodes, startUp(t, netnstest.New(t), "--dir", dir, "--topology", "mesh:2x2", "--addr", fmt.Sprintf("10.2.0.%d/24", 1+i), "--node", fmt.Sprint(1+i)))
	}
	eventually(t, "ping", func() bool {
		return pings(nodes[0].ns, "10.2.0.4") && pings(nodes[0].ns, "10.2.0.2") && pings(nodes[2].ns, "10.2.0.4")
	})
	call := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := run(t.Context(), append(args, "--dir", dir)...)
		if status != cli.ExitOK {
			t.Fatalf("%v: %d, %s", args, status, stderr)
		}
		return stdout
	}
	drawing := func(name string) string {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte(call("topo", "--json")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	traffic := func() {
		t.Helper()
		for _, to := range []string{"10.2.0.4", "10.2.0.2"} {
			if err := nodes[0].ns.Run(exec.Command("ping", "-c", "20", "-i", "0.01", "-s", "1200", "-W", "5", to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	profile, page := filepath.Join(work, "run.json"), filepath.Join(work, "page.html")
	call("profile", "start")
	before := drawing("0.json")
	traffic()
	call("profile", "stop", "-o", profile)
	between := drawing("1.json")
	call("route", "reserve", "--pattern", profile, "--id", "pings")
	traffic()
	call("route", "page", "--profile", profile, "--before", before+","+between, "--after", between, "-o", page)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"run.json on mesh 2x2", "from row to column", "Largest load of a link by router", "the best router is ",
		"simulated, by the tables", "simulated, with the reserved routes", "counted by the links, before", "counted by the links, after",
		`<td class="t">pings</td>`, "1 → 3 → 4", "(simulated).", "(counted by the links).",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if n := bytes.Count(text, []byte("</svg>")); n != 6 {
		t.Errorf("%d drawings", n)
	}
	// Mistakes are a line each, and no page.
	other := filepath.Join(work, "other.json")
	_, stdout, _ := run(t.Context(), "topo", "--mesh", "3x3", "--json")
	if err := os.WriteFile(other, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--before " + before:                 "name two files, FROM,TO",
		"--after " + other:                   "it describes mesh 3x3",
		"--after " + profile:                 "not the output of exn-tun topo --json",
		"--after none.json":                  "none.json",
		"--before " + between + "," + before: "carried less",
		"--profile " + before + " --after x": "0.json",
		"--profile none.json --before x":     "none.json",
	} {
		full := append([]string{"route", "page", "--profile", profile, "-o", filepath.Join(work, "bad.html"), "--dir", dir}, strings.Fields(args)...)
		status, _, stderr := run(t.Context(), full...)
		if status == cli.ExitOK {
			t.Errorf("%s: no error", args)
		}
		oneLineOf(t, stderr, want)
	}
	if _, err := os.Stat(filepath.Join(work, "bad.html")); err == nil {
		t.Error("a page was written")
	}
}

func TestChangeOf(t *testing.T) {
	load := func(title string, bytes uint64, text string) *pageLoad {
		return &pageLoad{Title: title, peakBytes: bytes, Most: text}
	}
	before := load("simulated, by the tables", 200, "200 B")
	for want, after := range map[string]*pageLoad{
		"With the reserved routes the busiest link carries as much as without, 200 B (simulated).":         load("", 199, "200 B"),
		"With the reserved routes the busiest link carries 201 B instead of 200 B (simulated).":            load("", 200, "201 B"),
		"With the reserved routes the busiest link carries 150 B instead of 200 B: 25 % less (simulated).": load("", 150, "150 B"),
		"With the reserved routes the busiest link carries 300 B instead of 200 B: 50 % more (simulated).": load("", 300, "300 B"),
	} {
		if got := changeOf(before, after); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The page names the best router only if it is better than the tables.
func TestBestOf(t *testing.T) {
	for best, want := range map[string]string{
		"tables": "4 flows between nodes. By the tables the busiest link carries 2.0 kB; no router does better.",
		"minmax": "4 flows between nodes. By the tables the busiest link carries 2.0 kB; the best router is minmax, with 1.0 kB.",
	} {
		if got := bestOf(4, best, map[string]uint64{"tables": 2000, "minmax": 1000}); got != want {
			t.Errorf("%s: %q, want %q", best, got, want)
		}
	}
}

// A channel that carried nothing is not among the busiest.
func TestBusiest(t *testing.T) {
	mesh, err := daemon.ParseTopology("mesh:2x2")
	if err != nil {
		t.Fatal(err)
	}
	load := make([]topo.LinkLoad, len(mesh.Links()))
	load[0].AB.Bytes, load[1].BA.Bytes = 1, 2
	p := &routePage{Loads: []*pageLoad{{load: load}}}
	p.fillBusiest(mesh)
	if len(p.Channels) != 2 || p.Channels[0].peakBytes != 2 || p.Channels[1].peakBytes != 1 {
		t.Errorf("got %+v", p.Channels)
	}
}
