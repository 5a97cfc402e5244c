package storage

import (
	"errors"
	"fmt"
)

// ErrInvalid says that a shape or a selector is wrong.
var ErrInvalid = errors.New("invalid storage")

// MaxParts bounds the parts of each stage.
const MaxParts = 1 << 16

// Shape is how many parts each stage of a file system has. Group g has every router, and every
// server, whose number modulo Groups is g; server s has every target whose number modulo Servers
// is s. One file system of Titan's Spider II has 1008 targets of 144 servers, in 18 groups with
// 216 routers (section 7.1).
type Shape struct {
	Routers int // hosts of the network that forward to the storage
	Groups  int // LNETs: what a router reaches
	Servers int
	Targets int
}

// Check returns what is wrong with a shape.
func (s Shape) Check() error {
	for _, p := range []struct {
		name string
		n    int
	}{{"routers", s.Routers}, {"groups", s.Groups}, {"servers", s.Servers}, {"targets", s.Targets}} {
		if p.n < 1 || p.n > MaxParts {
			return fmt.Errorf("%w: %d %s: use 1 to %d", ErrInvalid, p.n, p.name, MaxParts)
		}
	}
	switch {
	case s.Routers%s.Groups != 0:
		return fmt.Errorf("%w: %d routers are no multiple of %d groups", ErrInvalid, s.Routers, s.Groups)
	case s.Servers%s.Groups != 0:
		return fmt.Errorf("%w: %d servers are no multiple of %d groups", ErrInvalid, s.Servers, s.Groups)
	case s.Targets%s.Servers != 0:
		return fmt.Errorf("%w: %d targets are no multiple of %d servers", ErrInvalid, s.Targets, s.Servers)
	}
	return nil
}

// server is the server of a target.
func (s Shape) server(target int) int { return target % s.Servers }

// group is the group of a target.
func (s Shape) group(target int) int { return s.server(target) % s.Groups }

// Path is the way of a client's bytes: the numbers of its parts, from 0.
type Path struct{ Router, Group, Server, Target int }

// Use counts the paths that cross each part.
type Use struct{ Routers, Groups, Servers, Targets []int }

// NewUse returns the use of a file system that nobody uses.
func NewUse(s Shape) *Use {
	return &Use{make([]int, s.Routers), make([]int, s.Groups), make([]int, s.Servers), make([]int, s.Targets)}
}

// Add counts n more paths, or -n fewer.
func (u *Use) Add(p Path, n int) {
	u.Routers[p.Router] += n
	u.Groups[p.Group] += n
	u.Servers[p.Server] += n
	u.Targets[p.Target] += n
}

// Time is how long a writer on a path takes, in units of the time of a writer that shares its
// target with nobody: the use of the busiest part of the path, over the targets' worth of capacity
// that such a part has.
func (u *Use) Time(p Path) float64 {
	targets := len(u.Targets)
	return max(
		float64(u.Targets[p.Target]),
		float64(u.Servers[p.Server]*len(u.Servers))/float64(targets),
		float64(u.Groups[p.Group]*len(u.Groups))/float64(targets),
		float64(u.Routers[p.Router]*len(u.Routers))/float64(targets))
}

// Imbalance is the imbalance factor of writers that write at once: the time of the slowest over
// that of the fastest (equation 7.8). It is 0 without writers.
func (u *Use) Imbalance(paths []Path) float64 {
	if len(paths) == 0 {
		return 0
	}
	slowest, fastest := u.Time(paths[0]), u.Time(paths[0])
	for _, p := range paths[1:] {
		t := u.Time(p)
		slowest, fastest = max(slowest, t), min(fastest, t)
	}
	return slowest / fastest
}
