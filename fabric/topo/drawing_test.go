package topo_test

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// loaded is a drawing with some traffic between the first and the last node.
func loaded(tb testing.TB, t *topo.Topology, cut ...int) topo.Drawing {
	r, l := routes(tb, t, cut...), topo.NewLoad(t)
	first, last := t.Nodes()[0], t.Nodes()[len(t.Nodes())-1]
	r.Carry(l, first, last, 300, 153600)
	r.Carry(l, last, first, 10, 1360)
	return topo.Drawing{Topology: t, Routes: r, Load: l.Links()}
}

// pairs is a drawing of three nodes, the first and the last of which are not linked.
func pairs(tb testing.TB) topo.Drawing {
	t, err := topo.NewPairs("lab", []fabric.NodeID{2, 3, 10}, [][2]fabric.NodeID{{3, 2}, {3, 10}})
	if err != nil {
		tb.Fatal(err)
	}
	return topo.Drawing{Topology: t, Load: []topo.LinkLoad{{}, {AB: topo.Counts{Bytes: 17}, BA: topo.Counts{Bytes: 4_100_000}}}}
}

func TestPairsInvalid(t *testing.T) {
	for _, pairs := range [][][2]fabric.NodeID{{{1, 2}, {2, 1}}, {{1, 1}}, {{1, 3}}} {
		if _, err := topo.NewPairs("lab", []fabric.NodeID{1, 2}, pairs); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%v: %v", pairs, err)
		}
	}
	if _, err := topo.NewPairs("lab", []fabric.NodeID{1, 1}, nil); !errors.Is(err, fabric.ErrInvalid) {
		t.Error(err)
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		d    topo.Drawing
		want string
	}{
		{loaded(t, mesh(t, "3x2"), 1), `mesh 3x2: 6 nodes, 7 links

 0 -9- 1 -9- 2
 x     1     9
 3 -.- 4 -1- 5

links: 1-9: load in ninths of the busiest; .: none; x: cut

busiest                       packets        bytes
0.x+ to 1.x-                      300     153.6 kB
1.x+ to 2.x-                      300     153.6 kB
2.y+ to 5.y-                      300     153.6 kB
1.x- to 0.x+                       10       1.4 kB
4.y- to 1.y+                       10       1.4 kB
5.x- to 4.x+                       10       1.4 kB
all links (6 in use)              930     464.9 kB
`},
		{topo.Drawing{Topology: torus(t, "3x1x2")}, `torus 3x1x2: 6 nodes, 9 links

z=0 (after the slash: the link in z+)
 0/. -.- 1/. -.- 2/. -.~

z=1 (after the slash: the link in z+)
 3/  -.- 4/  -.- 5/  -.~

links: .: none; ~: goes round

no traffic
`},
		{loaded(t, parse(t, "name = \"tail\"\nnodes = [1, 20, 3]\nlinks = [\"1 20\", \"3.7 20\"]")), `tail: 3 nodes, 2 links

 1  x+ -9- 20.x+
20  x+ -9- 1.x+  x- -9- 3.7
 3  7 -9- 20.x-

links: 1-9: load in ninths of the busiest

busiest                       packets        bytes
1.x+ to 20.x+                     300     153.6 kB
20.x- to 3.7                      300     153.6 kB
20.x+ to 1.x+                      10       1.4 kB
3.7 to 20.x-                       10       1.4 kB
all links (4 in use)              620     309.9 kB
`},
		{topo.Drawing{Topology: mesh(t, "2"), Shared: []topo.Shared{{From: 1, To: 0, Bytes: 3 << 20, Messages: 17}, {From: 1, To: 1, Bytes: 4, Messages: 1}}}, `mesh 2: 2 nodes, 1 links

 0 -.- 1

links: .: none

no traffic

shared memory, no link       messages        bytes
1 to 0                             17       3.1 MB
1 to 1                              1          4 B
`},
		{pairs(t), `lab, without a topology: 3 nodes, linked pairs: 2

 2  -.- 3
 3  -9- 10
10

links: 1-9: load in ninths of the busiest; .: none

busiest                       packets        bytes
10 to 3                             -       4.1 MB
3 to 10                             -         17 B
all links (2 in use)                -       4.1 MB
`},
	} {
		var b strings.Builder
		if err := tt.d.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if b.String() != tt.want {
			t.Errorf("%s\nwant\n%s", b.String(), tt.want)
		}
	}
}

// The legend says what the marks mean that are drawn, and no others.
func TestSVGLegend(t *testing.T) {
	all := []string{"dashed: the link goes round", "dotted: shared memory, no link, 3.1 MB", "grey circle: not up", "blue cross: cut"}
	for _, tt := range []struct {
		d    topo.Drawing
		want []int // of all
	}{
		{topo.Drawing{Topology: mesh(t, "3x2")}, nil},
		{topo.Drawing{Topology: torus(t, "4")}, []int{0}},
		{topo.Drawing{Topology: mesh(t, "2"), Shared: []topo.Shared{{From: 1, To: 0, Bytes: 3 << 20}}}, []int{1}},
		{topo.Drawing{Topology: mesh(t, "2"), Missing: []fabric.NodeID{1}}, []int{2}},
		{loaded(t, mesh(t, "3x2"), 1), []int{3}},
	} {
		var b strings.Builder
		if err := tt.d.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		for i, mark := range all {
			if got := strings.Contains(b.String(), mark); got != slices.Contains(tt.want, i) {
				t.Errorf("%v: %q: %v", tt.d.Topology, mark, got)
			}
		}
	}
}

// The SVG is well-formed, and has a circle for each node and two lines for each
// link, four for one that goes round, one for one that is cut.
func TestSVG(t *testing.T) {
	for _, tt := range []struct {
		d     topo.Drawing
		lines int
	}{
		{loaded(t, torus(t, "4x4x4"), 5), 2*(192-48) + 4*48 - 1},
		{loaded(t, torus(t, "4"), 3), 2*3 + 2}, // the one that goes round is cut
		{loaded(t, mesh(t, "4x3")), 2 * 17},
		{loaded(t, parse(t, irregular)), 2 * 12},
		{pairs(t), 2 * 2},
		{topo.Drawing{Topology: parse(t, "name = \"<&>\"\nnodes = [65535]")}, 0},
	} {
		var b strings.Builder
		if err := tt.d.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		count := make(map[string]int)
		dec := xml.NewDecoder(strings.NewReader(b.String()))
		for {
			tok, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v: %v", tt.d.Topology, err)
			}
			if s, ok := tok.(xml.StartElement); ok {
				count[s.Name.Local]++
			}
		}
		if count["circle"] != len(tt.d.Topology.Nodes()) || count["line"] != tt.lines {
			t.Errorf("%v: %d circles, %d lines, want %d", tt.d.Topology, count["circle"], count["line"], tt.lines)
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(b.String(), bad) {
				t.Errorf("%v: %s", tt.d.Topology, bad)
			}
		}
	}
}

func TestDrawingLimits(t *testing.T) {
	d := topo.Drawing{Topology: mesh(t, "4097")}
	if err := d.WriteSVG(io.Discard); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("SVG: %v", err)
	}
	if err := d.WriteText(io.Discard); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("text: %v", err)
	}
	d = loaded(t, mesh(t, "4"))
	for _, write := range []func(io.Writer) error{d.WriteSVG, d.WriteText} {
		if err := write(broken{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("broken writer: %v", err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
