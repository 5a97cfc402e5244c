package graph

import (
	"errors"
	"fmt"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// ErrInvalid says that a description of a network is wrong.
var ErrInvalid = errors.New("invalid network")

// Vertex is a host or a switch.
type Vertex struct {
	Name  string
	Host  bool
	Cores int // of a host; 0: as the scenario says
	Level int // of a tree: 0 for hosts, then upwards; 0 in other networks
}

// Channel is one direction of a link.
type Channel struct {
	From, To int32   // vertices
	Capacity float64 // relative to others; 1 if nothing is said
	Port     int     // at From, -1 if unknown
}

// Graph is a network. All methods may be called from many goroutines.
type Graph struct {
	name     string
	vertices []Vertex
	channels []Channel
	hosts    []int32 // vertices, ascending
	hostAt   []int32 // by vertex: position in hosts, or -1
	out, in  rows
	routes   *topo.Routes // nil: not made of a topology
}

// rows are the channels of each vertex, in the order of their numbers.
type rows struct {
	first []int32
	list  []int32
}

func (r *rows) ofVertex(v int32) []int32 { return r.list[r.first[v]:r.first[v+1]] }

// New returns a network. It has at least one host, all channels join vertices that
// exist, and every host reaches every other one.
func New(name string, vertices []Vertex, channels []Channel) (*Graph, error) {
	g := &Graph{name: name, vertices: vertices, channels: channels, hostAt: make([]int32, len(vertices))}
	for i, v := range vertices {
		g.hostAt[i] = -1
		if v.Host {
			g.hostAt[i] = int32(len(g.hosts))
			g.hosts = append(g.hosts, int32(i))
		}
	}
	if len(g.hosts) == 0 {
		return nil, fmt.Errorf("%w: it has no host", ErrInvalid)
	}
	for i, c := range channels {
		switch n := int32(len(vertices)); {
		case c.From < 0 || c.From >= n || c.To < 0 || c.To >= n:
			return nil, fmt.Errorf("%w: channel %d joins vertices that do not exist", ErrInvalid, i)
		case c.From == c.To:
			return nil, fmt.Errorf("%w: channel %d joins %q to itself", ErrInvalid, i, vertices[c.From].Name)
		case !(c.Capacity > 0):
			return nil, fmt.Errorf("%w: channel %d from %q to %q: capacity %v is not above 0", ErrInvalid, i, vertices[c.From].Name, vertices[c.To].Name, c.Capacity)
		}
	}
	g.out = makeRows(len(vertices), channels, func(c Channel) int32 { return c.From })
	g.in = makeRows(len(vertices), channels, func(c Channel) int32 { return c.To })
	return g, g.checkConnected()
}

func makeRows(n int, channels []Channel, end func(Channel) int32) rows {
	r := rows{first: make([]int32, n+1), list: make([]int32, len(channels))}
	for _, c := range channels {
		r.first[end(c)+1]++
	}
	for v := range n {
		r.first[v+1] += r.first[v]
	}
	next := append([]int32(nil), r.first[:n]...)
	for i, c := range channels {
		v := end(c)
		r.list[next[v]] = int32(i)
		next[v]++
	}
	return r
}

// checkConnected checks that the first host reaches all others, and they it.
func (g *Graph) checkConnected() error {
	for _, way := range []struct {
		rows *rows
		end  func(Channel) int32
		text string
	}{
		{&g.out, func(c Channel) int32 { return c.To }, "no route from %q to %q"},
		{&g.in, func(c Channel) int32 { return c.From }, "no route back to %q from %q"},
	} {
		var lost []int32
		seen := make([]bool, len(g.vertices))
		stack := []int32{g.hosts[0]}
		seen[g.hosts[0]] = true
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, c := range way.rows.ofVertex(v) {
				if w := way.end(g.channels[c]); !seen[w] {
					seen[w] = true
					stack = append(stack, w)
				}
			}
		}
		for _, h := range g.hosts {
			if !seen[h] {
				lost = append(lost, h)
			}
		}
		if lost != nil {
			text := fmt.Sprintf(way.text, g.vertices[g.hosts[0]].Name, g.vertices[lost[0]].Name)
			if n := len(lost) - 1; n > 0 {
				text += fmt.Sprintf(", and %d other hosts", n)
			}
			return &unreachable{lost[0], text}
		}
	}
	return nil
}

// unreachable says that there is no route to or from a vertex.
type unreachable struct {
	vertex int32
	text   string
}

func (e *unreachable) Error() string { return ErrInvalid.Error() + ": " + e.text }

func (e *unreachable) Unwrap() error { return ErrInvalid }

// FromTopology returns the network of a fabric: each node is a host that forwards,
// and its name is its node ID. Links that the routes have cut have no channels that
// lead anywhere; Routes.Cut of a Graph says which.
func FromTopology(name string, r *topo.Routes) (*Graph, error) {
	t := r.Topology()
	at := make(map[fabric.NodeID]int32, len(t.Nodes()))
	vertices := make([]Vertex, len(t.Nodes()))
	for i, n := range t.Nodes() {
		at[n] = int32(i)
		vertices[i] = Vertex{Name: fmt.Sprint(n), Host: true}
	}
	channels := make([]Channel, 0, 2*len(t.Links()))
	for _, l := range t.Links() {
		channels = append(channels,
			Channel{at[l.A.Node], at[l.B.Node], 1, int(l.A.Port)},
			Channel{at[l.B.Node], at[l.A.Node], 1, int(l.B.Port)})
	}
	g, err := New(name, vertices, channels)
	if err != nil {
		return nil, err
	}
	g.routes = r
	return g, nil
}

// Name is what the network was called when it was made: "torus:4x4".
func (g *Graph) Name() string { return g.name }

// Vertices lends the vertices. They must not be changed.
func (g *Graph) Vertices() []Vertex { return g.vertices }

// Channels lends the channels. They must not be changed.
func (g *Graph) Channels() []Channel { return g.channels }

// Hosts lends the vertices that are hosts, in ascending order.
func (g *Graph) Hosts() []int32 { return g.hosts }

// HostIndex returns the position of a vertex in Hosts, or -1 if it is a switch.
func (g *Graph) HostIndex(v int32) int { return int(g.hostAt[v]) }

// Out lends the channels that leave a vertex, in ascending order.
func (g *Graph) Out(v int32) []int32 { return g.out.ofVertex(v) }

// In lends the channels that lead to a vertex, in ascending order.
func (g *Graph) In(v int32) []int32 { return g.in.ofVertex(v) }

// Routes returns the routing tables of the fabric that the network was made of, or
// nil.
func (g *Graph) Routes() *topo.Routes { return g.routes }

// Down reports whether a channel belongs to a link that is cut.
func (g *Graph) Down(channel int32) bool {
	return g.routes != nil && g.routes.Down(int(channel/2))
}

// ChannelName returns "from>to" with the names of its vertices.
func (g *Graph) ChannelName(channel int32) string {
	c := g.channels[channel]
	return g.vertices[c.From].Name + ">" + g.vertices[c.To].Name
}
