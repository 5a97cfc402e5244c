package crossbar

import (
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// MaxOverrides is how many overrides the reservations of a fabric can have.
const MaxOverrides = 4096

// Reservation is a set of overrides that come and go together.
type Reservation struct {
	ID        string
	Overrides []topo.Override
}

// tagged identifies an override: no two may share it.
type tagged struct {
	from, to fabric.NodeID
	class    fabric.Class
}

// passable returns the overrides whose links are all up. While a link is cut, packets
// of the overrides that cross it take the routes of the tables.
func passable(r *topo.Routes, list []Reservation) (up []topo.Override) {
	for _, s := range list {
		for _, o := range s.Overrides {
			if _, err := r.With([]topo.Override{o}); err == nil {
				up = append(up, o)
			}
		}
	}
	return up
}

// Reserve makes a reservation, if changes is still the number of changes. With dry it
// only checks. Each packet takes either its old route or its new one. Reserve copies s.
// The error wraps ErrAgain if another change came first, ErrInUse if the ID is taken or
// another reservation has an override for the same two nodes and class, or ErrInvalid.
func (x *Crossbars) Reserve(s Reservation, changes uint64, dry bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.routes.Load()
	if changes != x.changes {
		return fmt.Errorf("crossbar: the reservations have changed: %w", fabric.ErrAgain)
	}
	count := len(s.Overrides)
	taken := make(map[tagged]string)
	for _, old := range x.reserved {
		count += len(old.Overrides)
		if old.ID == s.ID {
			return fmt.Errorf("crossbar: reservation %q: %w", s.ID, fabric.ErrInUse)
		}
		for _, o := range old.Overrides {
			taken[tagged{o.From, o.To, o.Class}] = old.ID
		}
	}
	if count > MaxOverrides {
		return fmt.Errorf("crossbar: %d overrides do not fit; the limit is %d: %w", count, MaxOverrides, fabric.ErrInvalid)
	}
	for _, o := range s.Overrides {
		if id, ok := taken[tagged{o.From, o.To, o.Class}]; ok {
			return fmt.Errorf("crossbar: reservation %q already has the route from node %d to node %d, class %d: %w", id, o.From, o.To, o.Class, fabric.ErrInUse)
		}
	}
	if _, err := now.With(s.Overrides); err != nil {
		return err
	}
	if dry {
		return nil
	}
	kept := Reservation{ID: s.ID}
	for _, o := range s.Overrides {
		kept.Overrides = append(kept.Overrides, topo.Override{From: o.From, To: o.To, Class: o.Class, Ports: slices.Clone(o.Ports)})
	}
	return x.setLocked(append(slices.Clone(x.reserved), kept))
}

// Release ends a reservation. The error wraps ErrNoRoute if there is none with that ID.
func (x *Crossbars) Release(id string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.reserved, func(s Reservation) bool { return s.ID == id })
	if i < 0 {
		return fmt.Errorf("crossbar: reservation %q: %w", id, fabric.ErrNoRoute)
	}
	return x.setLocked(slices.Delete(slices.Clone(x.reserved), i, i+1))
}

// setLocked computes the routes of the reservations and puts them into force.
//
// +checklocks:x.mu
func (x *Crossbars) setLocked(list []Reservation) error {
	now := x.routes.Load()
	r, err := now.With(passable(now, list))
	if err != nil {
		return err
	}
	x.reserved, x.changes = list, x.changes+1
	x.routes.Store(r)
	return nil
}

// Reservations returns all reservations, and the number of changes so far. The caller
// must not change the list.
func (x *Crossbars) Reservations() (list []Reservation, changes uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reserved, x.changes
}
