package graph

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Attribute is a value of each channel that WriteGraphML writes.
type Attribute struct {
	Name  string
	Value func(channel int32) uint64
}

// WriteGraphML writes the network as a directed graph: nodes with name, typ ("host"
// or "switch"), capacity (cores) and level, edges with capacity, port and the
// attributes given. Gephi, Cytoscape and networkx read it, and so does ReadGraphML.
func (g *Graph) WriteGraphML(w io.Writer, attributes ...Attribute) error {
	b := bufio.NewWriter(w)
	b.WriteString(xml.Header + `<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="typ" for="node" attr.name="typ" attr.type="string"/>
<key id="cores" for="node" attr.name="capacity" attr.type="int"/>
<key id="level" for="node" attr.name="level" attr.type="int"/>
<key id="cap" for="edge" attr.name="capacity" attr.type="double"/>
<key id="port" for="edge" attr.name="port" attr.type="int"/>
`)
	for i, a := range attributes {
		fmt.Fprintf(b, "<key id=\"a%d\" for=\"edge\" attr.name=%q attr.type=\"long\"/>\n", i, a.Name)
	}
	b.WriteString("<graph id=\"G\" edgedefault=\"directed\">\n")
	for _, v := range g.vertices {
		typ := "switch"
		if v.Host {
			typ = "host"
		}
		fmt.Fprintf(b, `<node id="%s"><data key="typ">%s</data>`, escape(v.Name), typ)
		if v.Cores > 0 {
			fmt.Fprintf(b, `<data key="cores">%d</data>`, v.Cores)
		}
		fmt.Fprintf(b, `<data key="level">%d</data></node>`+"\n", v.Level)
	}
	for i, c := range g.channels {
		fmt.Fprintf(b, `<edge source="%s" target="%s"><data key="cap">%g</data>`, escape(g.vertices[c.From].Name), escape(g.vertices[c.To].Name), c.Capacity)
		if c.Port >= 0 {
			fmt.Fprintf(b, `<data key="port">%d</data>`, c.Port)
		}
		for k, a := range attributes {
			fmt.Fprintf(b, `<data key="a%d">%d</data>`, k, a.Value(int32(i)))
		}
		b.WriteString("</edge>\n")
	}
	b.WriteString("</graph>\n</graphml>\n")
	return b.Flush()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}

// graphML is a GraphML file while it is read.
type graphML struct {
	name     string
	decoder  *xml.Decoder
	keys     map[string]string // by ID: "node.capacity"
	defaults map[string]string // by ID
	at       map[string]int32  // vertices by ID
	vertices []Vertex
	lines    []int // by vertex
	channels []Channel
	directed bool
	errs     []error
}

// ReadGraphML reads a network called name. Nodes are hosts unless their typ says
// switch; an edge of an undirected graph is two channels. The error has a line for
// each mistake, with the file's name and the line.
func ReadGraphML(name string, r io.Reader) (*Graph, error) {
	f := graphML{name: name, decoder: xml.NewDecoder(r), keys: make(map[string]string), defaults: make(map[string]string), at: make(map[string]int32), directed: true}
	for {
		token, err := f.decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.noteMistake("%v", strings.TrimPrefix(err.Error(), "XML syntax error on "))
			break
		}
		if start, ok := token.(xml.StartElement); ok {
			f.startElement(start)
		}
	}
	if len(f.errs) == 0 && len(f.vertices) == 0 {
		f.noteMistake("no nodes: is this GraphML?")
	}
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	g, err := New(name, f.vertices, f.channels)
	if err == nil {
		return g, nil
	}
	if e, ok := errors.AsType[*unreachable](err); ok {
		return nil, fmt.Errorf("%s:%d: %w", name, f.lines[e.vertex], err)
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

func (f *graphML) noteMistake(format string, args ...any) {
	line, _ := f.decoder.InputPos()
	f.wrongAt(line, format, args...)
}

func (f *graphML) wrongAt(line int, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s:%d: "+format+": %w", append(append([]any{f.name, line}, args...), ErrInvalid)...))
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (f *graphML) startElement(e xml.StartElement) {
	switch e.Name.Local {
	case "graph":
		f.directed = attr(e, "edgedefault") != "undirected"
	case "key":
		f.keys[attr(e, "id")] = attr(e, "for") + "." + attr(e, "attr.name")
		var key struct {
			Default *string `xml:"default"`
		}
		if err := f.decoder.DecodeElement(&key, &e); err == nil && key.Default != nil {
			f.defaults[attr(e, "id")] = strings.TrimSpace(*key.Default)
		}
	case "node":
		f.addNode(e)
	case "edge":
		f.addEdge(e)
	}
}

// readData reads the values of an element, by what their keys stand for.
func (f *graphML) readData(e *xml.StartElement) map[string]string {
	var body struct {
		Data []struct {
			Key   string `xml:"key,attr"`
			Value string `xml:",chardata"`
		} `xml:"data"`
	}
	if err := f.decoder.DecodeElement(&body, e); err != nil {
		return nil // the next Token says so, too
	}
	values := make(map[string]string, len(body.Data))
	for id, v := range f.defaults {
		values[f.keys[id]] = v
	}
	for _, d := range body.Data {
		values[f.keys[d.Key]] = strings.TrimSpace(d.Value)
	}
	return values
}

func (f *graphML) addNode(e xml.StartElement) {
	line, _ := f.decoder.InputPos()
	id := attr(e, "id")
	values := f.readData(&e)
	v := Vertex{Name: id}
	switch typ := values["node.typ"]; typ {
	case "", "host":
		v.Host = true
	case "switch":
	default:
		f.wrongAt(line, "node %q: typ %q is neither host nor switch", id, typ)
	}
	for _, n := range []struct {
		key string
		to  *int
	}{{"node.capacity", &v.Cores}, {"node.level", &v.Level}} {
		if s := values[n.key]; s != "" {
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i > maxVertices {
				f.wrongAt(line, "node %q: %s %q is not a whole number from 0 up", id, strings.TrimPrefix(n.key, "node."), s)
			}
			*n.to = i
		}
	}
	if !v.Host {
		v.Cores = 0
	}
	if _, ok := f.at[id]; ok || id == "" {
		f.wrongAt(line, "node %q appears twice or has no id", id)
		return
	}
	f.at[id] = int32(len(f.vertices))
	f.vertices = append(f.vertices, v)
	f.lines = append(f.lines, line)
}

func (f *graphML) addEdge(e xml.StartElement) {
	line, _ := f.decoder.InputPos()
	values := f.readData(&e)
	c := Channel{Capacity: 1, Port: -1}
	ends := true
	for _, end := range []struct {
		key string
		to  *int32
	}{{"source", &c.From}, {"target", &c.To}} {
		v, ok := f.at[attr(e, end.key)]
		if !ok {
			f.wrongAt(line, "edge: %s %q is not a node above it", end.key, attr(e, end.key))
			ends = false
		}
		*end.to = v
	}
	if ends && c.From == c.To {
		f.wrongAt(line, "edge: it joins %q to itself", attr(e, "source"))
	}
	if s := values["edge.capacity"]; s != "" {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n > 0) || n > 1e18 {
			f.wrongAt(line, "edge: capacity %q is not a number above 0", s)
		}
		c.Capacity = n
	}
	if s := values["edge.port"]; s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			f.wrongAt(line, "edge: port %q is not a whole number", s)
		}
		c.Port = n
	}
	f.channels = append(f.channels, c)
	if directed := attr(e, "directed"); directed == "false" || directed == "" && !f.directed {
		f.channels = append(f.channels, Channel{c.To, c.From, c.Capacity, -1})
	}
}
