package control

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/topo"
)

// What a Request of OpRoute wants.
const (
	RouteList    = "list"
	RouteCheck   = "check" // says whether RouteReserve would succeed
	RouteReserve = "reserve"
	RouteRelease = "release"
	RouteCut     = "cut"  // a link is down
	RouteJoin    = "join" // it is up again

	RouteAdaptive = "adaptive" // data of RMA is routed adaptively
	RouteOrdered  = "ordered"  // and no longer
)

// RouteRequest asks for a change of a node's reservations, or of its links.
type RouteRequest struct {
	Want    string      `json:"want"`
	Reserve Reservation `json:"reserve"`           // of RouteRelease only the ID
	Changes uint64      `json:"changes,omitempty"` // of the answer that it is based on
	Link    Ends        `json:"link,omitzero"`     // of RouteCut and RouteJoin
}

// Ends are the two nodes that a link joins.
type Ends [2]fabric.NodeID

// Reservation is a set of overrides that come and go together.
type Reservation struct {
	ID        string     `json:"id"`
	Overrides []Override `json:"overrides,omitempty"`
}

// Override is a separate route for what one node sends to another.
type Override struct {
	From  fabric.NodeID `json:"from"`
	To    fabric.NodeID `json:"to"`
	Class fabric.Class  `json:"class,omitempty"`
	Ports []string      `json:"ports"`
	Cut   bool          `json:"cut,omitempty"` // one of its links is cut: packets follow the tables
}

// Reservations are the reservations of a node.
type Reservations struct {
	Changes uint64        `json:"changes"` // so far
	List    []Reservation `json:"list"`
	Cut     []Ends        `json:"cut,omitempty"` // links that are down
	// Adaptive: data of RMA is routed adaptively.
	Adaptive bool `json:"adaptive,omitempty"`
}

// CutLinks returns the links of routes that are down.
func CutLinks(r *topo.Routes) (list []Ends) {
	for _, l := range r.Cut() {
		link := r.Topology().Links()[l]
		list = append(list, Ends{link.A.Node, link.B.Node})
	}
	return list
}

// Routes asks for a change of the node's reservations, and returns the reservations after it.
func (c *Client) Routes(req RouteRequest) (*Reservations, error) {
	r, err := c.roundTrip(Request{Op: OpRoute, Route: &req})
	if err == nil && r.Routes == nil {
		err = fmt.Errorf("node %d returned no reservations", c.Node.Node)
	}
	return r.Routes, err
}

// NewOverride returns the form of o for JSON.
func NewOverride(o topo.Override) Override {
	n := Override{From: o.From, To: o.To, Class: o.Class}
	for _, p := range o.Ports {
		n.Ports = append(n.Ports, p.String())
	}
	return n
}

// Build returns the reservation in the form of package crossbar.
func (r Reservation) Build() (crossbar.Reservation, error) {
	built := crossbar.Reservation{ID: r.ID}
	for _, o := range r.Overrides {
		b := topo.Override{From: o.From, To: o.To, Class: o.Class}
		for _, s := range o.Ports {
			p, err := topo.ParsePort(s)
			if err != nil {
				return built, err
			}
			b.Ports = append(b.Ports, p)
		}
		built.Overrides = append(built.Overrides, b)
	}
	return built, nil
}
