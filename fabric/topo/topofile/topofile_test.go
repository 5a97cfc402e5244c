package topofile_test

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
)

func parse(t *testing.T, text string) *topo.Topology {
	t.Helper()
	tp, err := topofile.Parse("lab.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tp
}

// irregular is a topology file with links of every form.
//
//go:embed testdata/irregular.toml
var irregular string

func TestParse(t *testing.T) {
	tp := parse(t, irregular)
	if tp.Name() != "irregular" || tp.Kind() != topo.KindFree || tp.Dims() != (topo.Dims{}) {
		t.Errorf("%v: %v %v", tp, tp.Kind(), tp.Dims())
	}
	var links []string
	for _, l := range tp.Links() {
		links = append(links, l.String())
	}
	want := []string{
		"1.x+ 2.x+", "2.x- 3.x+", "3.x- 1024.x+", "1024.x- 1.x-", "2.7 5000.7",
		"5000.x+ 65535.x+", "65535.x- 7.x+", "7.x- 5000.x-", "1024.y+ 8.x+", "8.x- 9.x+", "9.x- 10.x+", "10.x- 65535.y+",
	}
	if !slices.Equal(links, want) {
		t.Errorf("links %q\nwant  %q", links, want)
	}
	tp = parse(t, `torus = "3x2"`+"\nfirst = 10")
	if tp.Kind() != topo.KindTorus || !slices.Equal(tp.Nodes(), []fabric.NodeID{10, 11, 12, 13, 14, 15}) {
		t.Errorf("%v %v", tp, tp.Nodes())
	}
	tp = parse(t, `mesh = "3"`+"\nnodes = [7, 5, 6]")
	if e, ok := tp.Neighbour(5, topo.PortXMinus); tp.Kind() != topo.KindMesh || !ok || e.Node != 7 {
		t.Errorf("%v: %v", tp, e)
	}
}

func TestParseMistakes(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "lab.toml: one of torus, mesh or nodes expected"},
		{"torus = \"4x4\"\nspeed = 3\n\n[size]\nx = 1", `lab.toml:2: unknown key "speed": use name, torus, mesh, first, nodes, links
lab.toml:4: unknown key "size": use name, torus, mesh, first, nodes, links`},
		{"torus = \"4x4\"\nmesh = \"4\"", "lab.toml:2: torus and mesh exclude each other"},
		{"torus = \"4x4\"\n\nlinks = []", "lab.toml:3: torus and links exclude each other"},
		{"torus = \"4\"\nfirst = 1\nnodes = [1, 2, 3, 4]", "lab.toml:2: first and nodes exclude each other"},
		{"first = 3\nnodes = [1]", "lab.toml:1: first goes with torus or mesh"},
		{"first = 65536\ntorus = \"4\"", "lab.toml:1: first = 65536: IDs go from 0 to 65535"},
		{"first = 65535\ntorus = \"4\"", "lab.toml:2: dimensions 4, first node 65535: node IDs end at 65535"},
		{"\ntorus = \"4x\"", `lab.toml:2: dimensions "4x": use numbers such as 4x4x4`},
		{"mesh = \"2x2\"\nnodes = [1, 2, 3]", "lab.toml:2: 3 nodes, mesh 2x2 has 4"},
		{"speed = 3\ntorus = \"4x\"\nmesh = 4\nfirst = 65536\nnodes = [70000]\nlinks = [\"1 2\"]", `lab.toml:1: unknown key "speed": use name, torus, mesh, first, nodes, links
lab.toml:3: mesh is not a quoted string such as "4x4x4"
lab.toml:5: node 70000: IDs go from 0 to 65535
lab.toml:3: torus and mesh exclude each other
lab.toml:6: torus and links exclude each other
lab.toml:4: first and nodes exclude each other
lab.toml:4: first = 65536: IDs go from 0 to 65535
lab.toml:2: dimensions "4x": use numbers such as 4x4x4`},
		{"name = 1\ntorus.x = 2\nfirst = 1.5\nnodes = [1, \"2\"]\nlinks = \"1 2\"", `lab.toml:1: name is not a quoted string
lab.toml:2: torus is not a quoted string such as "4x4x4"
lab.toml:3: first is not a whole number
lab.toml:4: nodes is not a list of whole numbers such as [1, 2, 3]
lab.toml:5: links is not a list of quoted strings such as ["1 2"]
lab.toml:5: torus and links exclude each other
lab.toml:3: first and nodes exclude each other`},
		{"first = 1\nlinks = [\"1 2\"]", "lab.toml:1: first goes with torus or mesh\nlab.toml:2: links goes with nodes"},
		{"mesh = \"2\"\nnodes = [1, 1]", "lab.toml:2: node 1 appears twice\nlab.toml:2: link 1 (1.x+ 1.x-): it joins a node to itself"},
		{"nodes = [1, 65536, -1]", "lab.toml:1: node 65536: IDs go from 0 to 65535\nlab.toml:1: node -1: IDs go from 0 to 65535"},
		{"nodes = [1, 2]\nlinks = [\n# \"1 3\"\n\"1 2\", \"1 3\",\n \"2.a 1\"]", `lab.toml:5: link "2.a 1": port "a": use x+, x-, y+, y-, z+, z- or 7
lab.toml:4: link 2 (1.x- 3.x+): no node 3`},
		{"nodes = [1, 2]\nlinks = [\n# \"1 3\"\n\"1 2\", \"1 3\",\n \"2.x+ 2\"]", "lab.toml:4: link 2 (1.x- 3.x+): no node 3\nlab.toml:5: link 3 (2.x+ 2.y+): it joins a node to itself"},
		{"nodes = [1, 2]\nlinks = [\"1\",\n\"1-2\",\n\"1 65536\", \"x 1\"]", `lab.toml:2: link "1": use a form such as "1.x+ 2.x-" or "1 2"
lab.toml:3: link "1-2": use a form such as "1.x+ 2.x-" or "1 2"
lab.toml:4: link "1 65536": node "65536": use a number from 0 to 65535
lab.toml:4: link "x 1": node "x": use a number from 0 to 65535`},
		{"nodes = [1, 2]\nlinks = ['1 9']", "lab.toml: link 1 (1.x+ 9.x+): no node 9"},
		{"nodes = [0,1,2,3,4,5,6,7,8]\nlinks = [\"0 1\",\"0 2\",\"0 3\",\"0 4\",\n\"0 5\",\"0 6\",\"0 7\",\n\"0 8\"]", "lab.toml:4: link 8 (0 8): node 0 has more than 7 links"},
		{"nodes = [1, 2]", "lab.toml:1: no path from node 1 to [2]"},
		{"nodes = 3\n", "lab.toml:1: nodes is not a list of whole numbers such as [1, 2, 3]"},
		{"nodes = [1\nlinks", "lab.toml:2: expected a comma (',') or array terminator (']'), but got 'l'"},
		{"nodes = [1]\nnodes = [1]", "lab.toml:2: Key 'nodes' has already been defined."},
	} {
		tp, err := topofile.Parse("lab.toml", []byte(tt.text))
		if !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%q: %v, %v", tt.text, tp, err)
			continue
		}
		if got := strings.ReplaceAll(err.Error(), ": "+fabric.ErrInvalid.Error(), ""); got != tt.want {
			t.Errorf("%q:\n%s\nwant\n%s", tt.text, got, tt.want)
		}
	}
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lab.toml")
	if _, err := topofile.Read(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(name, []byte(irregular), 0o600); err != nil {
		t.Fatal(err)
	}
	if tp, err := topofile.Read(name); err != nil || tp.Name() != "irregular" {
		t.Errorf("%v, %v", tp, err)
	}
}

// What Parse takes is a valid topology: what it says about its links is true, and
// every node can be reached.
func FuzzParse(f *testing.F) {
	f.Add(irregular)
	f.Add("torus = \"3x4\"\nfirst = 9")
	f.Add("mesh = \"2x2x2\"")
	f.Add("nodes = [1, 2]\nlinks = [\"1.7 2\"]")
	f.Fuzz(func(t *testing.T, text string) {
		tp, err := topofile.Parse("fuzz.toml", []byte(text))
		if err != nil {
			if tp != nil {
				t.Fatalf("a topology with the error %v", err)
			}
			return
		}
		if len(tp.Nodes()) > 256 {
			return
		}
		for i, l := range tp.Links() {
			if n, ok := tp.Between(l.B.Node, l.A.Node); !ok || n != i {
				t.Fatalf("link %d is link %d", i, n)
			}
		}
		if reached := flood(tp); len(reached) != len(tp.Nodes()) {
			t.Fatalf("%d of %d nodes are connected", len(reached), len(tp.Nodes()))
		}
	})
}

// flood returns the nodes that a topology's first node reaches.
func flood(tp *topo.Topology) map[fabric.NodeID]bool {
	first := tp.Nodes()[0]
	reached, next := map[fabric.NodeID]bool{first: true}, []fabric.NodeID{first}
	for len(next) > 0 {
		n := next[0]
		next = next[1:]
		for p := range topo.Port(topo.Ports) {
			if e, ok := tp.Neighbour(n, p); ok && !reached[e.Node] {
				reached[e.Node] = true
				next = append(next, e.Node)
			}
		}
	}
	return reached
}
