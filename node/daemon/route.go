package daemon

import (
	"errors"
	"fmt"

	"exnet/fabric/crossbar"
	"exnet/fabric/topo"
	"exnet/node/control"
)

// Routes changes the reservations of the node's crossbars or their links, and returns what
// there is then.
func (d *Daemon) Routes(req control.RouteRequest) (*control.Reservations, error) {
	x := d.crossbars
	if x == nil {
		return nil, errors.New("the fabric has no topology: start the nodes with exn-tun up --topology")
	}
	switch req.Want {
	case control.RouteList:
	case control.RouteCheck, control.RouteReserve:
		built, err := req.Reserve.Build()
		if err == nil {
			err = x.Reserve(built, req.Changes, req.Want == control.RouteCheck)
		}
		if err != nil {
			return nil, err
		}
	case control.RouteRelease:
		if err := x.Release(req.Reserve.ID); err != nil {
			return nil, err
		}
	case control.RouteCut, control.RouteJoin:
		if err := setLinkDown(x, req.Link, req.Want == control.RouteCut); err != nil {
			return nil, err
		}
	case control.RouteAdaptive, control.RouteOrdered:
		if err := x.SetAdaptive(req.Want == control.RouteAdaptive); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("route %q: use list, check, reserve, release, cut, join, adaptive or ordered", req.Want)
	}
	return listReservations(x), nil
}

// setLinkDown sets a link down or up. A link without which nodes would be cut off stays up.
func setLinkDown(x *crossbar.Crossbars, l control.Ends, down bool) error {
	if i, ok := x.Topology().Between(l[0], l[1]); ok && down {
		r, err := topo.NewRoutes(x.Topology(), append(x.Routes().Cut(), i)...)
		if err != nil {
			return err
		}
		if n := len(r.Parts()); n > 1 {
			return fmt.Errorf("the link from node %d to node %d stays up: without it the fabric falls into %d parts", l[0], l[1], n)
		}
	}
	return x.SetLinkDown(l[0], l[1], down)
}

func listReservations(x *crossbar.Crossbars) *control.Reservations {
	list, changes := x.Reservations()
	routes := x.Routes()
	r := &control.Reservations{Changes: changes, List: []control.Reservation{}, Cut: control.CutLinks(routes), Adaptive: x.Adaptive()}
	for _, s := range list {
		c := control.Reservation{ID: s.ID}
		for _, o := range s.Overrides {
			n := control.NewOverride(o)
			_, err := routes.With([]topo.Override{o})
			n.Cut = err != nil
			c.Overrides = append(c.Overrides, n)
		}
		r.List = append(r.List, c)
	}
	return r
}
