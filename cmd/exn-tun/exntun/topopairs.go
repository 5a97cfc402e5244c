package exntun

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/internal/counter"
	"exnet/node/control"
)

// pairsOf asks the selected nodes of a fabric without a topology, on all hosts, who is linked with
// whom, and adds up what they have sent to each other.
func pairsOf(o nodeOptions) (*fabricTopology, error) {
	all, err := o.nodesEverywhere()
	if err != nil {
		return nil, err
	}
	p := pairing{sent: make(map[[2]fabric.NodeID]uint64)}
	for _, n := range all.nodes {
		s, err := askOf(all, n, (*control.Client).Status)
		if errors.Is(err, control.ErrNoNode) && len(all.nodes) > 1 {
			continue // it is just starting or ending
		}
		if err != nil {
			return nil, err
		}
		if s.Topology != "" {
			return nil, fmt.Errorf("node %d has the topology %s, and others have none: start the nodes with the same exn-tun up --topology", n, s.Topology)
		}
		p.addStatus(n, s)
	}
	return p.drawnTopology()
}

// pairing is who is linked with whom.
type pairing struct {
	fabric string
	nodes  []fabric.NodeID
	pairs  [][2]fabric.NodeID
	sent   map[[2]fabric.NodeID]uint64 // bytes, from and to
	shared []topo.Shared
}

// addStatus adds the status of a node.
func (p *pairing) addStatus(n fabric.NodeID, s *control.Status) {
	p.fabric = s.Fabric
	p.nodes = append(p.nodes, n)
	for _, peer := range s.Peers {
		to := fabric.NodeID(peer.Node)
		if peer.Link == "" {
			continue
		}
		p.nodes = append(p.nodes, to)
		p.pairs = append(p.pairs, [2]fabric.NodeID{min(n, to), max(n, to)})
		p.sent[[2]fabric.NodeID{n, to}] = sentTo(s.Counters, to)
	}
	for _, d := range s.Shared {
		if d.Sent.Bytes > 0 {
			p.shared = append(p.shared, topo.Shared{From: n, To: fabric.NodeID(d.Node), Bytes: d.Sent.Bytes, Messages: d.Sent.Messages})
		}
	}
}

// sentTo returns how many bytes the links to a node have carried.
func sentTo(l counter.List, to fabric.NodeID) (sum uint64) {
	for _, c := range l {
		if link, ok := strings.CutSuffix(c.Name, fmt.Sprintf(".node%d.tx_bytes", to)); ok && !strings.Contains(link, ".") {
			sum += c.Value
		}
	}
	return sum
}

func (p *pairing) drawnTopology() (*fabricTopology, error) {
	slices.Sort(p.nodes)
	slices.SortFunc(p.pairs, func(a, b [2]fabric.NodeID) int { return slices.Compare(a[:], b[:]) })
	nodes, pairs := slices.Compact(p.nodes), slices.Compact(p.pairs)
	t, err := topo.NewPairs(p.fabric, nodes, pairs)
	if err != nil {
		return nil, err
	}
	load := make([]topo.LinkLoad, len(pairs))
	for i, pair := range pairs {
		load[i].AB.Bytes = p.sent[pair]
		load[i].BA.Bytes = p.sent[[2]fabric.NodeID{pair[1], pair[0]}]
	}
	f := &fabricTopology{Topology: control.NewTopology(t, load), Missing: []fabric.NodeID{}, topo: t, load: load, shared: p.shared}
	f.Topology.Shared = p.shared
	return f, nil
}
