package pattern

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
)

// Params are what a pattern is made of. Each pattern uses those that it needs.
type Params struct {
	Ranks int
	Bytes uint64 // of a message
	Class byte   // of cg: S, W, A to E
	Flows int    // of random
	Seed  uint64 // of random and hotspot
}

// makers are the patterns that Make knows.
var makers = map[string]func(Params) ([]Flow, error){
	"allreduce": allreduce,
	"alltoall":  alltoall,
	"bcast":     bcast,
	"cg":        cg,
	"halo2d":    func(p Params) ([]Flow, error) { return halo(p, 2) },
	"halo3d":    func(p Params) ([]Flow, error) { return halo(p, 3) },
	"hotspot":   hotspot,
	"random":    random,
	"reduce":    reduce,
	"ring":      ring,
	"tornado":   tornado,
	"transpose": transposed,
}

// Names lists the patterns that Make knows.
func Names() []string { return slices.Sorted(maps.Keys(makers)) }

// Make makes a pattern by name: cg (the exchange of NPB's CG), allreduce (recursive doubling),
// alltoall, ring, halo2d and halo3d (neighbours of a grid that closes), bcast (a binomial tree from
// rank 0), reduce (the same tree to rank 0), random (as many flows between random ranks), hotspot
// (from each rank to rank 0, and as much to one at random); of ranks in a square by rows, transpose
// (from row i and column j to row j and column i) and tornado (half a row less one ahead).
func Make(name string, p Params) (*Pattern, error) {
	make, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q is not one of %s", ErrInvalid, name, strings.Join(Names(), ", "))
	}
	if p.Ranks < 1 || p.Ranks > MaxRanks {
		return nil, fmt.Errorf("%w: %s of %d ranks: use 1 to %d", ErrInvalid, name, p.Ranks, MaxRanks)
	}
	flows, err := make(p)
	if err != nil {
		return nil, err
	}
	made, err := newPattern(p.Ranks, flows)
	if err != nil {
		return nil, fmt.Errorf("%s of %d ranks, %d bytes each: %w", name, p.Ranks, p.Bytes, err)
	}
	return made, nil
}

// allreduce pairs ranks by recursive doubling: in step k each rank exchanges with the
// one that differs in bit k. If the ranks are no power of two, the even ones of the
// first pairs leave their share to the next and sit out.
func allreduce(p Params) (flows []Flow, err error) {
	a := 1 << (bits.Len(uint(p.Ranks)) - 1)
	e := p.Ranks - a
	both := func(i, j int) {
		flows = append(flows, Flow{int32(i), int32(j), p.Bytes}, Flow{int32(j), int32(i), p.Bytes})
	}
	for i := range e {
		both(2*i, 2*i+1)
	}
	rank := func(i int) int { // of the i-th that takes part
		if i < e {
			return 2*i + 1
		}
		return i + e
	}
	for i := range a {
		for bit := 1; bit < a; bit <<= 1 {
			if i&bit == 0 {
				both(rank(i), rank(i|bit))
			}
		}
	}
	return flows, nil
}

func alltoall(p Params) (flows []Flow, err error) {
	if p.Ranks*(p.Ranks-1) > maxFlows {
		return nil, fmt.Errorf("%w: alltoall of %d ranks has more than %d flows", ErrInvalid, p.Ranks, maxFlows)
	}
	for i := range p.Ranks {
		for j := range p.Ranks {
			if i != j {
				flows = append(flows, Flow{int32(i), int32(j), p.Bytes})
			}
		}
	}
	return flows, nil
}

func ring(p Params) (flows []Flow, err error) {
	for i := range p.Ranks {
		flows = append(flows, Flow{int32(i), int32((i + 1) % p.Ranks), p.Bytes})
	}
	return flows, nil
}

// squareSide is that of a square of ranks.
func (p Params) squareSide(name string) (int, error) {
	q := int(math.Sqrt(float64(p.Ranks)))
	if q*q != p.Ranks {
		return 0, fmt.Errorf("%w: %s of %d ranks: use a square number", ErrInvalid, name, p.Ranks)
	}
	return q, nil
}

func transposed(p Params) (flows []Flow, err error) {
	q, err := p.squareSide("transpose")
	for i := range p.Ranks * min(q, 1) {
		if to := i%q*q + i/q; to != i {
			flows = append(flows, Flow{int32(i), int32(to), p.Bytes})
		}
	}
	return flows, err
}

func tornado(p Params) (flows []Flow, err error) {
	q, err := p.squareSide("tornado")
	for i := range p.Ranks * min(q, 1) {
		if to := i - i%q + (i%q+(q-1)/2)%q; to != i {
			flows = append(flows, Flow{int32(i), int32(to), p.Bytes})
		}
	}
	return flows, err
}

func hotspot(p Params) (flows []Flow, err error) {
	rng := rand.New(rand.NewPCG(p.Seed, 3))
	for i := 1; i < p.Ranks; i++ {
		flows = append(flows, Flow{int32(i), 0, p.Bytes}, Flow{int32(i), int32((i + 1 + rng.IntN(p.Ranks-1)) % p.Ranks), p.Bytes})
	}
	return flows, nil
}

func bcast(p Params) (flows []Flow, err error) {
	for bit := 1; bit < p.Ranks; bit <<= 1 {
		for i := range min(bit, p.Ranks-bit) {
			flows = append(flows, Flow{int32(i), int32(i + bit), p.Bytes})
		}
	}
	return flows, nil
}

func reduce(p Params) ([]Flow, error) {
	flows, err := bcast(p)
	for i, f := range flows {
		flows[i] = Flow{f.To, f.From, f.Bytes}
	}
	return flows, err
}

// halo exchanges with the neighbours in a grid of as equal sides as possible, whose
// ends are neighbours, too.
func halo(p Params, dims int) (flows []Flow, err error) {
	size, rest := make([]int, dims), p.Ranks
	for d := range dims {
		size[d] = largestSide(rest, dims-d)
		rest /= size[d]
	}
	for i := range p.Ranks {
		step := 1
		for _, n := range size {
			c := i / step % n
			for _, to := range []int{(c + 1) % n, (c + n - 1) % n} {
				if to != c {
					flows = append(flows, Flow{int32(i), int32(i + (to-c)*step), p.Bytes})
				}
			}
			step *= n
		}
	}
	return flows, nil
}

// largestSide is the largest divisor of n that is at most its dims-th root.
func largestSide(n, dims int) int {
	best := 1
	for s := 1; pow(s, dims) <= n; s++ {
		if n%s == 0 {
			best = s
		}
	}
	if dims == 1 {
		return n
	}
	return best
}

// pow is s to the power of e, which is small.
func pow(s, e int) int {
	r := 1
	for range e {
		r *= s
	}
	return r
}

func random(p Params) (flows []Flow, err error) {
	switch {
	case p.Flows < 1 || p.Flows > maxFlows:
		return nil, fmt.Errorf("%w: random with %d flows: use 1 to %d", ErrInvalid, p.Flows, maxFlows)
	case p.Ranks < 2:
		return nil, fmt.Errorf("%w: random of %d ranks: use 2 or more", ErrInvalid, p.Ranks)
	}
	r := rand.New(rand.NewPCG(p.Seed, 0))
	for range p.Flows {
		from := r.IntN(p.Ranks)
		to := (from + 1 + r.IntN(p.Ranks-1)) % p.Ranks
		flows = append(flows, Flow{int32(from), int32(to), p.Bytes})
	}
	return flows, nil
}
