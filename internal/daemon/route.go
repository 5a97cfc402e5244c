package daemon

import (
	"errors"
	"fmt"

	"exnet/fabric/crossbar"
	"exnet/fabric/topo"
	"exnet/internal/control"
)

// Routes changes the reservations of the node's crossbars, and returns those that there
// are then.
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
	default:
		return nil, fmt.Errorf("route %q: use list, check, reserve or release", req.Want)
	}
	return reservations(x), nil
}

func reservations(x *crossbar.Crossbars) *control.Reservations {
	list, changes := x.Reservations()
	routes := x.Routes()
	r := &control.Reservations{Changes: changes, List: []control.Reservation{}}
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
