// Package topofile reads topology files: TOML that describes nodes and links.
//
// # Architecture
//
//	file ──▶ Read ──▶ Parse ──▶ topo.Grid, topo.New ──▶ topo.Topology
//
// It is apart from package topo so that a program which knows topologies without reading files
// of them does not link a reader of TOML.
//
// # Concurrency
//
// The functions may be called from many goroutines.
//
// # Limits
//
// A mistake in a string that is not written plainly ('1 2', or with escapes) is reported without
// its line.
package topofile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/internal/infile"
)

// file is the content of a topology file:
//
//	name  = "lab"
//	torus = "4x4x4"          # or mesh = "4x4"
//	first = 1                # ID of the first node, 0 if left out
//
// or
//
//	name  = "lab"
//	nodes = [1, 2, 3]
//	links = [
//	  "1.x+ 2.x-",           # node.port node.port
//	  "2 3",                 # without a port: the lowest that is free
//	]
//
// A torus or mesh may have nodes instead of first: their IDs, x counting fastest.
type file struct {
	name, torus, mesh string
	first             int64
	nodes             []int64
	links             []string
	set               map[string]bool // keys that are there
	wrong             map[string]bool // of these, those whose value is no such value at all
}

// fieldOf returns where a key's value goes, and what it has to be; nil: there is no such key.
func (f *file) fieldOf(key string) (to any, what string) {
	switch key {
	case "name":
		return &f.name, "a quoted string"
	case "torus":
		return &f.torus, "a quoted string such as \"4x4x4\""
	case "mesh":
		return &f.mesh, "a quoted string such as \"4x4x4\""
	case "first":
		return &f.first, "a whole number"
	case "nodes":
		return &f.nodes, "a list of whole numbers such as [1, 2, 3]"
	case "links":
		return &f.links, "a list of quoted strings such as [\"1 2\"]"
	}
	return nil, ""
}

// Read reads a topology file.
func Read(name string) (*topo.Topology, error) {
	data, err := infile.Read(name)
	if err != nil {
		return nil, fmt.Errorf("topo: %w", err)
	}
	return Parse(filepath.Base(name), data)
}

// Parse reads the content of a topology file called name. The error has a line for
// each mistake, each with the file's name and where possible the line number.
func Parse(name string, data []byte) (*topo.Topology, error) {
	src := source{name: name, lines: strings.Split(string(data), "\n")}
	f, err := src.decodeFile(string(data))
	if err != nil {
		return nil, err
	}
	nodes := src.validNodes(f.nodes)
	var t *topo.Topology
	switch {
	case f.set["torus"] || f.set["mesh"]:
		t = src.makeGrid(f, nodes)
	case f.set["nodes"] || f.set["links"]:
		t = src.freeTopology(f, nodes)
	case f.set["first"]:
		src.noteMistake("first", "first goes with torus or mesh")
	default:
		src.errs = append(src.errs, src.errorAt(0, "one of torus, mesh or nodes expected"))
	}
	if err := errors.Join(src.errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// decodeFile reads the values. The error is that of a file that is not TOML; other mistakes are
// noted.
func (s *source) decodeFile(text string) (*file, error) {
	f := &file{set: make(map[string]bool), wrong: make(map[string]bool)}
	var content map[string]toml.Primitive
	if err := infile.CheckTOML(text); err != nil {
		return nil, s.syntaxError(err)
	}
	md, err := toml.Decode(text, &content)
	if err != nil {
		return nil, s.syntaxError(err)
	}
	for _, path := range md.Keys() {
		key := path[0]
		to, what := f.fieldOf(key)
		switch {
		case f.set[key]:
		case to == nil:
			s.noteMistake(key, "unknown key %q: use name, torus, mesh, first, nodes, links", key)
		case md.PrimitiveDecode(content[key], to) != nil: // its words are of Go's types
			s.noteMistake(key, "%s is not %s", key, what)
			f.wrong[key] = true
		}
		f.set[key] = true
	}
	return f, nil
}

// validNodes returns those of the IDs that can be one.
func (s *source) validNodes(ids []int64) (nodes []fabric.NodeID) {
	for _, n := range ids {
		if n < 0 || n >= topo.MaxNodes {
			s.noteMistake("nodes", "node %d: IDs go from 0 to %d", n, topo.MaxNodes-1)
			continue
		}
		nodes = append(nodes, fabric.NodeID(n))
	}
	return nodes
}

// makeGrid makes a torus or mesh, if there was no mistake.
func (s *source) makeGrid(f *file, nodes []fabric.NodeID) *topo.Topology {
	k, key, dims := topo.KindTorus, "torus", f.torus
	if !f.set[key] {
		k, key, dims = topo.KindMesh, "mesh", f.mesh
	}
	own := f.set["nodes"]
	line := s.keyLine(key)
	if f.set["torus"] && f.set["mesh"] {
		s.noteMistake("mesh", "torus and mesh exclude each other")
	}
	if f.set["links"] {
		s.noteMistake("links", "%s and links exclude each other", key)
	}
	if f.set["first"] && own {
		s.noteMistake("first", "first and nodes exclude each other")
	}
	if f.first < 0 || f.first >= topo.MaxNodes {
		s.noteMistake("first", "first = %d: IDs go from 0 to %d", f.first, topo.MaxNodes-1)
	}
	if f.wrong[key] {
		return nil
	}
	d, err := topo.ParseDims(dims)
	switch {
	case err != nil:
		s.errs = append(s.errs, s.wrapAt(line, err))
	case own && !f.wrong["nodes"] && len(f.nodes) != d.Nodes():
		s.noteMistake("nodes", "%d nodes, %s %v has %d", len(f.nodes), key, d, d.Nodes())
	}
	if len(s.errs) > 0 {
		return nil
	}
	if own {
		line = s.keyLine("nodes")
	} else {
		nodes, err = d.IDs(fabric.NodeID(f.first))
	}
	var t *topo.Topology
	if err == nil {
		t, err = topo.NewGrid(f.name, k, d, nodes)
	}
	for _, e := range joinedErrors(err) {
		s.errs = append(s.errs, s.wrapAt(line, e))
	}
	return t
}

// freeTopology makes a topology of nodes and links. Where there are mistakes, it looks for more:
// New finds no port for a link that was not read, and what it says about that link is not said
// twice.
func (s *source) freeTopology(f *file, nodes []fabric.NodeID) *topo.Topology {
	if f.set["first"] {
		s.noteMistake("first", "first goes with torus or mesh")
	}
	if !f.set["nodes"] {
		s.noteMistake("links", "links goes with nodes")
	}
	lines := s.stringLines(f.links)
	links, skip := make([]topo.Link, len(f.links)), make([]bool, len(f.links))
	for i, text := range f.links {
		l, err := parseLink(text)
		if err != nil {
			s.errs = append(s.errs, s.wrapAt(lines[i], err))
			skip[i] = true
		}
		links[i] = l
	}
	for _, e := range givePorts(links, skip) {
		s.errs = append(s.errs, s.wrapAt(lines[e.Index], e))
		skip[e.Index] = true
	}
	if !f.set["nodes"] || f.wrong["nodes"] {
		return nil
	}
	t, err := topo.New(f.name, nodes, links)
	for _, e := range joinedErrors(err) {
		if bad, ok := errors.AsType[*topo.LinkError](e); !ok || !skip[bad.Index] {
			s.errs = append(s.errs, s.wrapAt(s.lineOfLink(lines, e), e))
		}
	}
	return t
}

// lineOfLink finds the line of a mistake in a link, or in the nodes.
func (s *source) lineOfLink(lines []int, err error) int {
	if e, ok := errors.AsType[*topo.LinkError](err); ok {
		return lines[e.Index]
	}
	return s.keyLine("nodes")
}

// parseLink reads "1.x+ 2.x-". Ports that are not named are topo.PortNone.
func parseLink(s string) (topo.Link, error) {
	ends := strings.Fields(s)
	if len(ends) != 2 {
		return topo.Link{}, fmt.Errorf("link %q: use a form such as \"1.x+ 2.x-\" or \"1 2\": %w", s, fabric.ErrInvalid)
	}
	a, err := parseEnd(ends[0])
	if err != nil {
		return topo.Link{}, fmt.Errorf("link %q: %w", s, err)
	}
	b, err := parseEnd(ends[1])
	if err != nil {
		return topo.Link{}, fmt.Errorf("link %q: %w", s, err)
	}
	return topo.Link{A: a, B: b}, nil
}

func parseEnd(s string) (topo.End, error) {
	node, port, named := strings.Cut(s, ".")
	n, err := strconv.ParseUint(node, 10, 16)
	if err != nil {
		return topo.End{}, fmt.Errorf("node %q: use a number from 0 to %d: %w", node, topo.MaxNodes-1, fabric.ErrInvalid)
	}
	e := topo.End{Node: fabric.NodeID(n), Port: topo.PortNone}
	if named {
		e.Port, err = topo.ParsePort(port)
	}
	return e, err
}

// givePorts gives the lowest free port to every end that has none, except for the links of
// which skip says so.
func givePorts(links []topo.Link, skip []bool) (errs []*topo.LinkError) {
	used := make(map[topo.End]bool)
	for i, l := range links {
		if !skip[i] {
			used[l.A], used[l.B] = true, true
		}
	}
	for i := range links {
		if skip[i] {
			continue
		}
		for _, e := range []*topo.End{&links[i].A, &links[i].B} {
			for p := topo.Port(0); e.Port == topo.PortNone && p < topo.Ports; p++ {
				if !used[topo.End{Node: e.Node, Port: p}] {
					e.Port = p
					used[*e] = true
				}
			}
			if e.Port == topo.PortNone {
				reason := fmt.Sprintf("node %d has more than %d links", e.Node, topo.Ports)
				errs = append(errs, &topo.LinkError{Index: i, Link: links[i], Reason: reason})
			}
		}
	}
	return errs
}

// source is a file that is being read, with the mistakes so far.
type source struct {
	name  string
	lines []string
	errs  []error
}

// noteMistake notes a mistake in the value of a key.
func (s *source) noteMistake(key, format string, args ...any) {
	s.errs = append(s.errs, s.errorAt(s.keyLine(key), format, args...))
}

func (s *source) errorAt(line int, format string, args ...any) error {
	return s.wrapAt(line, fmt.Errorf(format+": %w", append(args, fabric.ErrInvalid)...))
}

func (s *source) wrapAt(line int, err error) error {
	if line == 0 {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return fmt.Errorf("%s:%d: %w", s.name, line, err)
}

// joinedErrors returns the errors that were joined to err.
func joinedErrors(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

func (s *source) syntaxError(err error) error {
	if e, ok := errors.AsType[toml.ParseError](err); ok {
		return s.errorAt(e.Position.Line, "%s", e.Message)
	}
	return s.errorAt(0, "%s", strings.TrimPrefix(err.Error(), "toml: "))
}

// keyLine is the line where a key is set, or 0.
func (s *source) keyLine(k string) int {
	for i, l := range s.lines {
		l = strings.TrimLeft(l, " \t[\"'")
		if rest, ok := strings.CutPrefix(l, k); ok && strings.ContainsAny(rest, "=]") {
			return i + 1
		}
	}
	return 0
}

// stringLines is the line of each of a sequence of strings, 0 for those that are not
// written plainly.
func (s *source) stringLines(list []string) []int {
	found := make([]int, len(list))
	line, rest := 0, ""
	for i, text := range list {
		for l, r := line, rest; ; r, l = s.codeLine(l), l+1 {
			if _, after, ok := strings.Cut(r, `"`+text+`"`); ok {
				line, rest, found[i] = l, after, l
				break
			}
			if l == len(s.lines) {
				break
			}
		}
	}
	return found
}

// codeLine is the line with the index i, without its comment.
func (s *source) codeLine(i int) string {
	l, _, _ := strings.Cut(s.lines[i], "#")
	return l
}
