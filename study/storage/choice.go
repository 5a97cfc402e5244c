package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Selectors names the ways to choose a path.
//
//   - random: any target, by any router of its group: what many clients get of a file system whose
//     allocation knows only its own end.
//   - nearest: any target, by the nearest router of its group (fine-grained routing, Algorithm 2).
//   - balanced: the path of least cost (Algorithm 3); among equals, by the nearest router.
var Selectors = []string{"random", "nearest", "balanced"}

// The weights of equation 7.5, for Spider II. Targets weigh most, as they are used least evenly.
const (
	weightRouter = 0.2
	weightGroup  = 0.2
	weightServer = 0.2
	weightTarget = 0.4
)

// Choice chooses the paths of the clients of one job.
type Choice struct {
	shape    Shape
	selector string
	hops     func(client, router int) int
	rng      *rand.Rand
	use      *Use // of this job
	first    int  // the group that wins a tie: Algorithm 3's random offset
}

// NewChoice returns a choice for a job. hops returns the distance of a client from a router, in
// links.
func NewChoice(selector string, s Shape, hops func(client, router int) int, rng *rand.Rand) (*Choice, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !slices.Contains(Selectors, selector) {
		return nil, fmt.Errorf("%w: selector %q is not one of %v", ErrInvalid, selector, Selectors)
	}
	return &Choice{shape: s, selector: selector, hops: hops, rng: rng, use: NewUse(s), first: rng.IntN(s.Groups)}, nil
}

// Next returns the path of the next client, and counts it.
func (c *Choice) Next(client int) Path {
	var p Path
	if c.selector == "balanced" {
		p = c.cheapest(client)
	} else {
		p.Target = c.rng.IntN(c.shape.Targets)
		p.Server, p.Group = c.shape.server(p.Target), c.shape.group(p.Target)
		if c.selector == "random" {
			p.Router = p.Group + c.shape.Groups*c.rng.IntN(c.shape.Routers/c.shape.Groups)
		} else {
			p.Router = c.router(client, p.Group, func(int) int { return 0 })
		}
	}
	c.use.Add(p, 1)
	return p
}

// cheapest returns the path of least cost by equation 7.5. As it is printed, Algorithm 3 sets the
// least cost to its maximum within the loop, and then assigns the new cost from the least one: it
// would always take the last target. Here the least cost is set before the loop. The cost of a path
// is a sum of parts, so the best target and the best router of each group are chosen apart.
func (c *Choice) cheapest(client int) (best Path) {
	s := c.shape
	targets := make([]int, s.Groups) // the cheapest of each group, + 1
	cost := func(t int) float64 {
		return weightServer*float64(c.use.Servers[s.server(t)]) + weightTarget*float64(c.use.Targets[t])
	}
	for t := range s.Targets {
		if g := s.group(t); targets[g] == 0 || cost(t) < cost(targets[g]-1) {
			targets[g] = t + 1
		}
	}
	least := -1.0
	for i := range s.Groups {
		g := (c.first + i) % s.Groups
		t, r := targets[g]-1, c.router(client, g, func(r int) int { return c.use.Routers[r] })
		if n := weightRouter*float64(c.use.Routers[r]) + weightGroup*float64(c.use.Groups[g]) + cost(t); least < 0 || n < least {
			least, best = n, Path{r, g, s.server(t), t}
		}
	}
	return best
}

// router returns the least used router of a group, and the nearest among equals.
func (c *Choice) router(client, group int, use func(router int) int) int {
	best := group
	for r := group + c.shape.Groups; r < c.shape.Routers; r += c.shape.Groups {
		if d := use(r) - use(best); d < 0 || d == 0 && c.hops(client, r) < c.hops(client, best) {
			best = r
		}
	}
	return best
}
