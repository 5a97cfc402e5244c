package study

import (
	"fmt"
	"math"
	"math/rand/v2"

	"exnet/fabric/graph"
	"exnet/fabric/routing"
	"exnet/study/storage"
)

// files is the storage, and what the jobs that run have open there.
type files struct {
	shape   storage.Shape
	routers []int32   // vertices: hosts at even distances in the order of the network
	hops    [][]int32 // by router: links to each vertex
	use     *storage.Use
	open    map[int][]storage.Path // by job
}

// newFiles takes the hosts of the storage's routers out of m.
func newFiles(c Config, m *machine) (*files, error) {
	if err := c.Storage.Check(); err != nil {
		return nil, err
	}
	hosts := c.Graph.Hosts()
	if c.jobHosts() < 1 {
		return nil, fmt.Errorf("%w: %d routers leave no host of %d for jobs", ErrInvalid, c.Storage.Routers, len(hosts))
	}
	f := &files{shape: c.Storage, use: storage.NewUse(c.Storage), open: make(map[int][]storage.Path)}
	for i := range c.Storage.Routers {
		at := i * len(hosts) / c.Storage.Routers
		m.markBusy([]int{at})
		f.routers = append(f.routers, hosts[at])
		f.hops = append(f.hops, hopsTo(c.Graph, hosts[at]))
	}
	return f, nil
}

// hopsTo counts the links of a shortest path from each vertex to one.
func hopsTo(g *graph.Graph, to int32) []int32 {
	hops := make([]int32, len(g.Vertices()))
	for i := range hops {
		hops[i] = math.MaxInt32
	}
	hops[to] = 0
	for next := []int32{to}; len(next) > 0; next = next[1:] {
		for _, c := range g.In(next[0]) {
			if v := g.Channels()[c].From; hops[v] == math.MaxInt32 && !g.Down(c) {
				hops[v] = hops[next[0]] + 1
				next = append(next, v)
			}
		}
	}
	return hops
}

// writerFlows opens the files of a job's ranks, and returns the flows to the routers and the
// imbalance factor of its writers beside the other jobs that write.
func (s *simulation) writerFlows(job int, hosts []int32) ([]routing.Flow, float64, error) {
	f, j := s.files, s.Jobs[job]
	if f == nil {
		return nil, 0, fmt.Errorf("%w: it writes, and there is no storage", ErrInvalid)
	}
	at := func(rank int) int32 { return hosts[hostOfRank(s.Placement, rank, s.Cores, len(hosts))] }
	rng := rand.New(rand.NewPCG(s.Seed, uint64(job)+1<<32))
	choice, err := storage.NewChoice(j.Target, f.shape, func(rank, router int) int { return int(f.hops[router][at(rank)]) }, rng)
	if err != nil {
		return nil, 0, err
	}
	flows := make([]routing.Flow, 0, j.Pattern.Ranks)
	for rank := range j.Pattern.Ranks {
		p := choice.Next(rank)
		f.use.Add(p, 1)
		f.open[job] = append(f.open[job], p)
		flows = append(flows, routing.Flow{From: at(rank), To: f.routers[p.Router], Bytes: j.Write})
	}
	return mergeFlows(flows), f.use.Imbalance(f.open[job]), nil
}

// closeFiles closes the files of a job, if it has any.
func (f *files) closeFiles(job int) {
	for _, p := range f.open[job] {
		f.use.Add(p, -1)
	}
	delete(f.open, job)
}
