package graph

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
	"exnet/internal/infile"
)

// Kinds are the forms that Parse takes, for messages.
const Kinds = "torus:4x4x4, mesh:4x4, tree:LEAVESxHOSTS/SPINES, fattree:K, FILE.toml or FILE.graphml"

// maxVertices bounds the networks that Parse makes.
const maxVertices = 1 << 20

// Parse makes the network that a text names: a torus or mesh by its dimensions, a
// tree of two levels by its leaves, hosts on each leaf and spines, a fat tree of
// three levels by the ports of its switches, a topology file, or a GraphML file.
// File names are relative to dir.
func Parse(text, dir string) (*Graph, error) {
	kind, arg, named := strings.Cut(text, ":")
	switch {
	case named && (kind == "torus" || kind == "mesh"):
		return parseGrid(text, kind, arg)
	case named && kind == "tree":
		return parseTree(text, arg)
	case named && kind == "fattree":
		k, err := strconv.Atoi(arg)
		if err != nil || k < 2 || k%2 != 0 || k > 100 {
			return nil, fmt.Errorf("%w: %q: a fat tree has switches with an even number of ports, 2 to 100, as in fattree:8", ErrInvalid, text)
		}
		return fatTree(text, k)
	}
	path := text
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	switch filepath.Ext(text) {
	case ".toml":
		t, err := topofile.Read(path)
		if err != nil {
			return nil, err
		}
		return fromTopology(text, t)
	case ".graphml", ".xml":
		f, err := infile.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return ReadGraphML(text, f)
	}
	return nil, fmt.Errorf("%w: %q: use %s", ErrInvalid, text, Kinds)
}

func fromTopology(name string, t *topo.Topology) (*Graph, error) {
	r, err := topo.NewRoutes(t)
	if err != nil {
		return nil, err
	}
	return FromTopology(name, r)
}

// parseGrid makes a torus or mesh. Its first node is 1, as that of a fabric.
func parseGrid(text, kind, arg string) (*Graph, error) {
	d, err := topo.ParseDims(arg)
	if err != nil {
		return nil, err
	}
	make := topo.NewTorus
	if kind == "mesh" {
		make = topo.NewMesh
	}
	t, err := make(d, 1)
	if err != nil {
		return nil, err
	}
	return fromTopology(text, t)
}

// parseTree makes a tree of two levels: every leaf has a link to every spine.
func parseTree(text, arg string) (*Graph, error) {
	down, up, ok := strings.Cut(arg, "/")
	l, h, ok2 := strings.Cut(down, "x")
	var n [3]int
	for i, s := range []string{l, h, up} {
		v, err := strconv.Atoi(s)
		if err != nil || v < 1 || v > maxVertices {
			ok = false
		}
		n[i] = v
	}
	if !ok || !ok2 || n[0]*n[1]+n[0]+n[2] > maxVertices {
		return nil, fmt.Errorf("%w: %q: a tree has leaves, hosts on each and spines, as in tree:4x5/2", ErrInvalid, text)
	}
	leaves, hosts, spines := n[0], n[1], n[2]
	b := builder{}
	for i := range leaves * hosts {
		b.addVertex(Vertex{Name: fmt.Sprintf("h%d", i+1), Host: true})
	}
	for i := range leaves {
		b.addVertex(Vertex{Name: fmt.Sprintf("leaf%d", i+1), Level: 1})
	}
	for i := range spines {
		b.addVertex(Vertex{Name: fmt.Sprintf("spine%d", i+1), Level: 2})
	}
	for i := range leaves * hosts {
		b.joinBoth(i, leaves*hosts+i/hosts)
	}
	for i := range leaves {
		for s := range spines {
			b.joinBoth(leaves*hosts+i, leaves*hosts+leaves+s)
		}
	}
	return New(text, b.vertices, b.channels)
}

// fatTree makes the tree of three levels of switches with k ports each: k pods of
// k/2 edge and k/2 upper switches, (k/2)² cores, k³/4 hosts (Al-Fares et al., 2008).
func fatTree(text string, k int) (*Graph, error) {
	half := k / 2
	hosts, pods := k*half*half, k*half
	b := builder{}
	for i := range hosts {
		b.addVertex(Vertex{Name: fmt.Sprintf("h%d", i+1), Host: true})
	}
	for i := range pods {
		b.addVertex(Vertex{Name: fmt.Sprintf("edge%d", i+1), Level: 1})
	}
	for i := range pods {
		b.addVertex(Vertex{Name: fmt.Sprintf("pod%d", i+1), Level: 2})
	}
	for i := range half * half {
		b.addVertex(Vertex{Name: fmt.Sprintf("core%d", i+1), Level: 3})
	}
	edge, upper, core := hosts, hosts+pods, hosts+2*pods
	for i := range hosts {
		b.joinBoth(i, edge+i/half)
	}
	for e := range pods {
		for u := range half {
			b.joinBoth(edge+e, upper+e/half*half+u)
		}
	}
	for u := range pods {
		for c := range half {
			b.joinBoth(upper+u, core+u%half*half+c)
		}
	}
	return New(text, b.vertices, b.channels)
}

// builder collects a network; the ports of a vertex count from 0 on.
type builder struct {
	vertices []Vertex
	ports    []int
	channels []Channel
}

func (b *builder) addVertex(v Vertex) {
	b.vertices = append(b.vertices, v)
	b.ports = append(b.ports, 0)
}

// joinBoth joins two vertices both ways.
func (b *builder) joinBoth(a, c int) {
	b.channels = append(b.channels,
		Channel{int32(a), int32(c), 1, b.ports[a]},
		Channel{int32(c), int32(a), 1, b.ports[c]})
	b.ports[a]++
	b.ports[c]++
}
