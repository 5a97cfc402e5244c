package daemon

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/emp"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
	"exnet/internal/cli"
	"exnet/node/control"
)

// FirstNode is the ID of the first node of a torus or mesh that is given by its
// dimensions alone: the first ID that EMP gives.
const FirstNode fabric.NodeID = 1

// ParseTopology returns the topology that s describes: torus:4x4x4, mesh:3x2, or
// the name of a topology file.
func ParseTopology(s string) (*topo.Topology, error) {
	kind, dims, ok := strings.Cut(s, ":")
	grid := topo.NewTorus
	switch {
	case ok && kind == "torus":
	case ok && kind == "mesh":
		grid = topo.NewMesh
	case s == "":
		return nil, fmt.Errorf("%w: topology: use torus:4x4x4, mesh:3x2, or the name of a file", ErrConfig)
	default:
		t, err := topofile.Read(s)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
		if near := cli.Closest(kind, []string{"torus", "mesh"}); ok && near != "" {
			return nil, fmt.Errorf("%w: there is no file %s: did you mean %s:%s?", ErrConfig, s, near, dims)
		}
		return nil, fmt.Errorf("%w: there is no file %s: use torus:4x4x4, mesh:3x2 or a file", ErrConfig, s)
	}
	d, err := topo.ParseDims(dims)
	if err != nil {
		return nil, err
	}
	return grid(d, FirstNode)
}

// topologyID tells topologies apart; "" is none.
func topologyID(t *topo.Topology) string {
	if t == nil {
		return ""
	}
	h := fnv.New32a()
	fmt.Fprintln(h, t.Nodes())
	for _, l := range t.Links() {
		fmt.Fprintln(h, l)
	}
	return fmt.Sprintf("%v (%08x)", t, h.Sum32())
}

// checkNode reports that the node asked for is not one of the topology.
func (c Config) checkNode() error {
	if c.Topology == nil || c.Node == nil || c.Topology.Has(*c.Node) {
		return nil
	}
	nodes := c.Topology.Nodes()
	return fmt.Errorf("%w: node %d is not in the topology (%v, from %d to %d): choose another, or leave it out",
		ErrConfig, *c.Node, c.Topology, nodes[0], nodes[len(nodes)-1])
}

// routeByTopology puts the crossbars of the topology, if there is one, before the NIC's
// links.
func (d *Daemon) routeByTopology() (err error) {
	if d.cfg.Topology == nil {
		return nil
	}
	if d.crossbars, err = crossbar.New(d.cfg.Topology); err != nil {
		return err
	}
	if err = d.crossbars.SetAdaptive(d.cfg.AdaptiveRouting); err != nil {
		return err
	}
	d.nic.Routes().OnMulticast(d.crossbars.Multicast(d.nic.ID()))
	return nil
}

// routed is a NIC whose links lead through crossbars.
type routed struct {
	*nic.NIC
	crossbars *crossbar.Crossbars
}

// Connect enters the way to a node.
func (r routed) Connect(to fabric.NodeID, p link.Port) {
	r.NIC.Connect(to, r.crossbars.Port(r.ID(), to, p))
}

// Topology returns the topology, with what this node has put on its links; nil if
// there is none.
func (d *Daemon) Topology() *control.Topology {
	if d.crossbars == nil {
		return nil
	}
	t := control.NewTopology(d.cfg.Topology, d.crossbars.Load().Links())
	t.Cut = control.CutLinks(d.crossbars.Routes())
	for _, p := range d.knownPeers() {
		if p.State == emp.Up {
			t.Peers = append(t.Peers, p.Node)
		}
	}
	for _, s := range d.sharedTraffic() {
		if s.Sent.Messages > 0 { // what is received is the other one's to tell
			t.Shared = append(t.Shared, topo.Shared{From: d.nic.ID(), To: fabric.NodeID(s.Node), Bytes: s.Sent.Bytes, Messages: s.Sent.Messages})
		}
	}
	return t
}

// hopsTo returns how far a peer is.
func (d *Daemon) hopsTo(to fabric.NodeID) int {
	if d.crossbars == nil {
		return 1 // every pair has a link of its own
	}
	return d.crossbars.Routes().Hops(d.nic.ID(), to)
}
