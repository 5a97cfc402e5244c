package exntun

import (
	"fmt"
	"strings"
	"testing"

	"exnet/fabric/graph"
	"exnet/internal/cli"
	"exnet/node/control"
	"exnet/node/daemon"
)

// Two corners of a square: while a link on the way is down, packets go by the other
// corner, and the drawing says so; a link that holds the fabric together stays up.
func TestRootSetLink(t *testing.T) {
	dir, a := corners(t)
	set := func(want string, args ...string) {
		t.Helper()
		status, stdout, stderr := run(t.Context(), append(append([]string{"set", "link"}, args...), "--dir", dir)...)
		if status != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Fatalf("%v: %d, %s%s; want %q", args, status, stdout, stderr, want)
		}
	}
	byX := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("a ping by x alone (%v) or by y alone", want), func() bool { // the kernel may send something else meanwhile
			before := leaving(t, dir)
			if !pings(a.ns, "10.2.0.4") {
				return false
			}
			after := leaving(t, dir)
			return (after[2] > before[2]) == want && (after[3] > before[3]) == !want
		})
	}
	drawn := func() string {
		t.Helper()
		status, stdout, stderr := run(t.Context(), "topo", "--dir", dir)
		if status != cli.ExitOK {
			t.Fatal(stderr)
		}
		return stdout
	}
	byX(true)
	whole := drawn()
	set("link 2-1 is down on 2 nodes; links that are down: 1; pairs of nodes that go around them: 4", "2-1", "down")
	byX(false)
	if got := drawn(); strings.Count(got, "x") <= strings.Count(whole, "x") {
		t.Errorf("the cut is not drawn:\n%s", got)
	}
	for _, bad := range []struct{ want, args string }{
		{"stays up: without it the fabric falls into 2 parts", "link 1-3 down"},
		{"no link joins node 1 and node 4", "link 1-4 down"},
		{"no link joins node 7 and node 1", "link 7-1 up"},
		{"leave out --node", "link 1-2 up --node 1"},
	} {
		status, stdout, stderr := run(t.Context(), append(append([]string{"set"}, strings.Fields(bad.args)...), "--dir", dir)...)
		if status == cli.ExitOK || stdout != "" || !strings.Contains(stderr, bad.want) {
			t.Errorf("%s: %d, %s%s", bad.args, status, stdout, stderr)
		}
	}
	byX(false)
	set("link 1-2 is up on 2 nodes; links that are down: 0; pairs of nodes that go around them: 0", "1-2", "up")
	byX(true)
}

func TestParseLink(t *testing.T) {
	s, err := parseLink([]string{"3-65535", "down"})
	if err != nil || s.ends != (control.Ends{3, 65535}) || !s.down {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "1-2", "1-2 off", "1 down", "-1 down", "1-65536 up", "a-b up", "1-2 up down", "1-2-3 up"} {
		if _, err := parseLink(strings.Fields(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Whichever link of a torus is cut, or whichever two of a mesh, the ways round find layers
// without a cycle.
func TestDetoursAreAcyclic(t *testing.T) {
	for _, name := range []string{"torus:4x4", "torus:3x3x3", "mesh:4x3"} {
		built, err := daemon.ParseTopology(name)
		if err != nil {
			t.Fatal(err)
		}
		links := built.Links()
		for i := range links {
			cut := []control.Ends{{links[i].A.Node, links[i].B.Node}}
			if other := links[(i*7+3)%len(links)]; strings.HasPrefix(name, "mesh") && other != links[i] {
				cut = append(cut, control.Ends{other.B.Node, other.A.Node})
			}
			routes, err := routesWithout(built, cut)
			if err != nil {
				t.Fatal(err)
			}
			if len(routes.Parts()) > 1 {
				continue // is refused
			}
			g, err := graph.FromTopology(name, routes)
			if err != nil {
				t.Fatal(err)
			}
			l := newLayers()
			n, err := l.placeDetours(g)
			if err != nil || n == 0 || l.dependencies.Cyclic() {
				t.Errorf("%s without %v: %d ways round, %v, cyclic: %v", name, cut, n, err, l.dependencies.Cyclic())
			}
		}
	}
}
