package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"exnet/fabric"
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
	Name  string   `toml:"name"`
	Torus *string  `toml:"torus"`
	Mesh  *string  `toml:"mesh"`
	First *int64   `toml:"first"`
	Nodes []int64  `toml:"nodes"`
	Links []string `toml:"links"`
}

// ReadFile reads a topology file.
func ReadFile(name string) (*Topology, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return Parse(filepath.Base(name), data)
}

// Parse reads the content of a topology file called name. The error has a line for
// each mistake, each with the file's name and where possible the line number.
func Parse(name string, data []byte) (*Topology, error) {
	src := source{name, strings.Split(string(data), "\n")}
	var f file
	md, err := toml.Decode(string(data), &f)
	if err != nil {
		return nil, src.syntax(err)
	}
	var errs []error
	for _, k := range md.Undecoded() {
		errs = append(errs, src.err(src.key(k[0]), "unknown key %q", k.String()))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	nodes, err := src.nodes(f.Nodes)
	if err != nil {
		return nil, err
	}
	if f.Torus != nil || f.Mesh != nil {
		return src.grid(&f, nodes)
	}
	if f.First != nil {
		return nil, src.err(src.key("first"), "first goes with torus or mesh")
	}
	if f.Nodes == nil {
		return nil, src.err(0, "one of torus, mesh or nodes expected")
	}
	return src.free(&f, nodes)
}

func (s *source) nodes(ids []int64) (nodes []fabric.NodeID, err error) {
	var errs []error
	for _, n := range ids {
		if n < 0 || n >= MaxNodes {
			errs = append(errs, s.err(s.key("nodes"), "node %d: IDs go from 0 to %d", n, MaxNodes-1))
		}
		nodes = append(nodes, fabric.NodeID(n))
	}
	return nodes, errors.Join(errs...)
}

func (s *source) grid(f *file, nodes []fabric.NodeID) (*Topology, error) {
	k, key, dims := KindTorus, "torus", f.Torus
	if dims == nil {
		k, key, dims = KindMesh, "mesh", f.Mesh
	}
	line := s.key(key)
	switch {
	case f.Torus != nil && f.Mesh != nil:
		return nil, s.err(s.key("mesh"), "torus and mesh exclude each other")
	case f.Links != nil:
		return nil, s.err(s.key("links"), "%s and links exclude each other", key)
	case f.First != nil && f.Nodes != nil:
		return nil, s.err(s.key("first"), "first and nodes exclude each other")
	case f.First != nil && (*f.First < 0 || *f.First >= MaxNodes):
		return nil, s.err(s.key("first"), "first = %d: IDs go from 0 to %d", *f.First, MaxNodes-1)
	}
	d, err := ParseDims(*dims)
	if err != nil {
		return nil, s.wrap(line, err)
	}
	var t *Topology
	switch {
	case f.Nodes == nil && f.First == nil:
		t, err = newGrid(f.Name, k, d, 0)
	case f.Nodes == nil:
		t, err = newGrid(f.Name, k, d, fabric.NodeID(*f.First))
	case len(nodes) != d.Nodes():
		return nil, s.err(s.key("nodes"), "%d nodes, %s %v has %d", len(nodes), key, d, d.Nodes())
	default:
		line = s.key("nodes")
		t, err = grid(f.Name, k, d, nodes)
	}
	return t, s.wrapAll(err, func(error) int { return line })
}

func (s *source) free(f *file, nodes []fabric.NodeID) (*Topology, error) {
	lines := s.strings(f.Links)
	links := make([]Link, len(f.Links))
	var errs []error
	for i, text := range f.Links {
		l, err := parseLink(text)
		if err != nil {
			errs = append(errs, s.wrap(lines[i], err))
		}
		links[i] = l
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	if err := givePorts(links); err != nil {
		return nil, s.wrapAll(err, lineOfLink(lines))
	}
	t, err := New(f.Name, nodes, links)
	return t, s.wrapAll(err, lineOfLink(lines))
}

func lineOfLink(lines []int) func(error) int {
	return func(err error) int {
		if e, ok := errors.AsType[*LinkError](err); ok {
			return lines[e.Index]
		}
		return 0
	}
}

// parseLink reads "1.x+ 2.x-". Ports that are not named are PortNone.
func parseLink(s string) (Link, error) {
	ends := strings.Fields(s)
	if len(ends) != 2 {
		return Link{}, fmt.Errorf("link %q: use a form such as \"1.x+ 2.x-\" or \"1 2\": %w", s, fabric.ErrInvalid)
	}
	a, err := parseEnd(ends[0])
	if err != nil {
		return Link{}, fmt.Errorf("link %q: %w", s, err)
	}
	b, err := parseEnd(ends[1])
	if err != nil {
		return Link{}, fmt.Errorf("link %q: %w", s, err)
	}
	return Link{a, b}, nil
}

func parseEnd(s string) (End, error) {
	node, port, named := strings.Cut(s, ".")
	n, err := strconv.ParseUint(node, 10, 16)
	if err != nil {
		return End{}, fmt.Errorf("node %q: use a number from 0 to %d: %w", node, MaxNodes-1, fabric.ErrInvalid)
	}
	e := End{fabric.NodeID(n), PortNone}
	if named {
		e.Port, err = ParsePort(port)
	}
	return e, err
}

// givePorts gives the lowest free port to every end that has none.
func givePorts(links []Link) error {
	used := make(map[End]bool)
	for _, l := range links {
		used[l.A], used[l.B] = true, true
	}
	var errs []error
	for i := range links {
		for _, e := range []*End{&links[i].A, &links[i].B} {
			for p := Port(0); e.Port == PortNone && p < Ports; p++ {
				if !used[End{e.Node, p}] {
					e.Port = p
					used[*e] = true
				}
			}
			if e.Port == PortNone {
				reason := fmt.Sprintf("node %d has more than %d links", e.Node, Ports)
				errs = append(errs, &LinkError{Index: i, Link: links[i], Reason: reason})
			}
		}
	}
	return errors.Join(errs...)
}

// source is a file that is being read, for messages about it.
type source struct {
	name  string
	lines []string
}

func (s *source) err(line int, format string, args ...any) error {
	return s.wrap(line, fmt.Errorf(format+": %w", append(args, fabric.ErrInvalid)...))
}

func (s *source) wrap(line int, err error) error {
	if line == 0 {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return fmt.Errorf("%s:%d: %w", s.name, line, err)
}

// wrapAll wraps each of the errors that were joined to err.
func (s *source) wrapAll(err error, line func(error) int) error {
	if err == nil {
		return nil
	}
	list := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		list = slices.Clone(j.Unwrap())
	}
	for i, e := range list {
		list[i] = s.wrap(line(e), e)
	}
	return errors.Join(list...)
}

func (s *source) syntax(err error) error {
	if e, ok := errors.AsType[toml.ParseError](err); ok {
		return s.err(e.Position.Line, "%s", e.Message)
	}
	return s.err(0, "%s", strings.TrimPrefix(err.Error(), "toml: "))
}

// key is the line where a key is set, or 0.
func (s *source) key(k string) int {
	for i, l := range s.lines {
		l = strings.TrimLeft(l, " \t[\"'")
		if rest, ok := strings.CutPrefix(l, k); ok && strings.ContainsAny(rest, "=]") {
			return i + 1
		}
	}
	return 0
}

// strings is the line of each of a sequence of strings, 0 for those that are not
// written plainly.
func (s *source) strings(list []string) []int {
	found := make([]int, len(list))
	line, rest := 0, ""
	for i, text := range list {
		for l, r := line, rest; ; r, l = s.code(l), l+1 {
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

// code is the line with the index i, without its comment.
func (s *source) code(i int) string {
	l, _, _ := strings.Cut(s.lines[i], "#")
	return l
}
