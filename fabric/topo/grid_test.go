package topo_test

import (
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

func TestParseDims(t *testing.T) {
	for s, want := range map[string]topo.Dims{
		"8": {8, 1, 1}, "4x3": {4, 3, 1}, "4x4x4": {4, 4, 4}, "1": {1, 1, 1}, "65536": {65536, 1, 1}, "2x1x5": {2, 1, 5},
	} {
		d, err := topo.ParseDims(s)
		if err != nil || d != want {
			t.Errorf("%q is %v, %v", s, d, err)
		}
		if again, err := topo.ParseDims(d.String()); err != nil || again != d {
			t.Errorf("%q is written as %q", s, d)
		}
	}
	for _, s := range []string{"", "0", "4x", "x4", "4x4x4x4", "-4", "4x0", "a", "65537", "256x257", "65536x65536x65536", "4 x 4", "99999999999999999999"} {
		if d, err := topo.ParseDims(s); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%q is %v, %v", s, d, err)
		}
	}
}

// Each node has the links that its coordinates say.
func TestGrid(t *testing.T) {
	for _, dims := range []string{"1", "2", "3", "5", "4x4", "2x3", "4x4x4", "2x2x2", "3x1x4"} {
		for _, tp := range []*topo.Topology{torus(t, dims), mesh(t, dims)} {
			links := 0
			d := tp.Dims()
			for i, n := range tp.Nodes() {
				c := [3]int{i % d[0], i / d[0] % d[1], i / d[0] / d[1]}
				for p := range topo.Port(6) {
					to, step := c, 1-2*int(p%2)
					dim := p / 2
					to[dim] += step
					around := to[dim] < 0 || to[dim] == d[dim]
					to[dim] = (to[dim] + d[dim]) % d[dim]
					want := d[dim] > 1 && !around || d[dim] > 2 && tp.Kind() == topo.KindTorus
					e, ok := tp.Neighbour(n, p)
					if ok != want {
						t.Errorf("%v: node %d, port %v: link %v", tp, n, p, ok)
						continue
					}
					if !ok {
						continue
					}
					links++
					if w := (topo.End{Node: tp.Nodes()[to[0]+d[0]*(to[1]+d[1]*to[2])], Port: p ^ 1}); e != w {
						t.Errorf("%v: %d.%v leads to %v, want %v", tp, n, p, e, w)
					}
				}
			}
			if links != 2*len(tp.Links()) {
				t.Errorf("%v: %d ends of links", tp, links)
			}
		}
	}
}

func TestGridLimits(t *testing.T) {
	big, err := topo.NewTorus(topo.Dims{64, 32, 32}, 0)
	if err != nil || len(big.Nodes()) != topo.MaxNodes || len(big.Links()) != 3*topo.MaxNodes {
		t.Fatalf("%v, %v", big, err)
	}
	if _, err := topo.NewMesh(topo.Dims{4, 1, 1}, 65532); err != nil {
		t.Error(err)
	}
	for _, d := range []topo.Dims{{}, {4}, {-1, -1, 1}, {65536, 2, 1}} {
		if _, err := topo.NewTorus(d, 0); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%v: %v", d, err)
		}
	}
	if _, err := topo.NewMesh(topo.Dims{4, 1, 1}, 65533); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("node IDs beyond the last: %v", err)
	}
}
