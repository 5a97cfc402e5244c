package study

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"exnet/fabric/graph"
	"exnet/fabric/pattern"
	"exnet/fabric/routing"
	"exnet/study/storage"
)

// ErrInvalid says that a scenario or a configuration is wrong.
var ErrInvalid = errors.New("invalid scenario")

// Job is a parallel program that waits for nodes and runs on them for a while.
type Job struct {
	Name     string
	Pattern  *pattern.Pattern
	Submit   time.Duration // after the beginning
	Duration time.Duration
	Write    uint64 // bytes that each rank writes to the storage, each to one target; 0: none
	Target   string // how it chooses the target: one of storage.Selectors
}

// totalBytes is what a job sends in all.
func (j Job) totalBytes() uint64 { return j.Pattern.Bytes() + j.Write*uint64(j.Pattern.Ranks) }

// Config is a simulation.
type Config struct {
	Graph     *graph.Graph
	Cores     int // of each host; 0: 1
	Scheduler string
	Selector  string
	Placement string
	Router    string
	Seed      uint64
	Storage   storage.Shape // zero: there is none
	Jobs      []Job
	// OnPath, if it is set, gets every flow between two hosts with its channels, which
	// are lent until it returns, and the position of its job.
	OnPath func(job int, f routing.Flow, path []int32)
}

// jobHosts is how many hosts jobs may have: all but the routers of the storage.
func (c Config) jobHosts() int { return len(c.Graph.Hosts()) - c.Storage.Routers }

// Record is what became of a job.
type Record struct {
	Name               string
	Submit, Start, End time.Duration
	Hosts              []int32 // vertices, in the order of placement
	Flows              int     // between pairs of hosts
	Bytes              uint64  // between hosts
	Imbalance          float64 // the imbalance factor of its writers when it started; 0: it does not write
}

// Result is the end of a simulation.
type Result struct {
	Records []Record // by job
	Load    *routing.Load
	Order   []int // jobs in the order of their starts
}

// Makespan is when the last job ended.
func (r *Result) Makespan() (end time.Duration) {
	for _, j := range r.Records {
		end = max(end, j.End)
	}
	return end
}

// Wait is the mean time that jobs waited.
func (r *Result) Wait() (mean time.Duration) {
	for _, j := range r.Records {
		mean += j.Start - j.Submit
	}
	return mean / time.Duration(max(len(r.Records), 1))
}

// event is a job's arrival, start or end.
type event struct {
	at   time.Duration
	kind kind
	seq  int // among equals, the one that was entered first
	job  int
}

type kind uint8

// Ends come before arrivals at the same time, so that what ends makes room.
const (
	finished kind = iota
	arrived
	started
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	a, b := e[i], e[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// share is what a job has put on a channel.
type share struct {
	channel, flows int32
	bytes          uint64
}

// simulation is one that runs.
type simulation struct {
	Config
	router  *routing.Router
	load    *routing.Load
	machine *machine
	rng     *rand.Rand
	events  events
	seq     int
	queue   []int  // jobs that wait
	nodes   []int  // by job: how many hosts it wants
	files   *files // nil: no storage
	taken   [][]int
	shares  [][]share
	bytes   []uint64 // by channel, scratch
	flows   []int32  // by channel, scratch
	result  Result
}

// Simulate runs jobs to their ends.
func Simulate(c Config) (*Result, error) {
	s, err := newSimulation(c)
	if err != nil {
		return nil, err
	}
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		switch e.kind {
		case arrived:
			s.queue = append(s.queue, e.job)
		case finished:
			s.finishJob(e.job)
		case started:
			if err := s.startJob(e.job); err != nil {
				return nil, fmt.Errorf("job %q: %w", s.Jobs[e.job].Name, err)
			}
			continue
		}
		// What else happens now counts first.
		if len(s.events) == 0 || s.events[0].at > e.at || s.events[0].kind == started {
			s.startJobs(e.at)
		}
	}
	return &s.result, nil
}

func newSimulation(c Config) (*simulation, error) {
	c.Cores = max(c.Cores, 1)
	for _, choice := range []struct {
		what, name string
		of         []string
	}{
		{"scheduler", c.Scheduler, Schedulers}, {"selector", c.Selector, Selectors}, {"placement", c.Placement, Placements},
	} {
		if err := oneOf(choice.what, choice.name, choice.of); err != nil {
			return nil, err
		}
	}
	router, err := routing.New(c.Router, c.Graph, c.Seed)
	if err != nil {
		return nil, err
	}
	hosts := c.jobHosts()
	n := len(c.Graph.Channels())
	s := &simulation{
		Config: c, router: router, load: routing.NewLoad(c.Graph), machine: newMachine(len(c.Graph.Hosts())),
		rng: rand.New(rand.NewPCG(c.Seed, 1)), nodes: make([]int, len(c.Jobs)),
		taken: make([][]int, len(c.Jobs)), shares: make([][]share, len(c.Jobs)),
		bytes: make([]uint64, n), flows: make([]int32, n),
	}
	if c.Storage != (storage.Shape{}) {
		if s.files, err = newFiles(c, s.machine); err != nil {
			return nil, err
		}
	}
	s.result = Result{Records: make([]Record, len(c.Jobs)), Load: s.load}
	for i, j := range c.Jobs {
		s.nodes[i] = (j.Pattern.Ranks + c.Cores - 1) / c.Cores
		if s.nodes[i] > hosts {
			return nil, fmt.Errorf("%w: job %q has %d ranks, more than %d hosts of %d cores hold", ErrInvalid, j.Name, j.Pattern.Ranks, hosts, c.Cores)
		}
		s.result.Records[i] = Record{Name: j.Name, Submit: j.Submit}
		s.pushEvent(j.Submit, arrived, i)
	}
	return s, nil
}

func oneOf(what, name string, of []string) error {
	if !slices.Contains(of, name) {
		return fmt.Errorf("%w: %s %q is not one of %v", ErrInvalid, what, name, of)
	}
	return nil
}

func (s *simulation) pushEvent(at time.Duration, k kind, job int) {
	s.seq++
	heap.Push(&s.events, event{at, k, s.seq, job})
}

// startJobs starts jobs that wait. FCFS starts the first one as long as it fits. With
// backfill a later one may go first if that does not put off the first: it ends before
// the first can begin, or leaves enough nodes for it.
func (s *simulation) startJobs(now time.Duration) {
	for len(s.queue) > 0 && s.nodes[s.queue[0]] <= s.machine.free {
		s.dispatchJob(now, 0)
	}
	if s.Scheduler != "backfill" || len(s.queue) < 2 {
		return
	}
	begin, spare := s.latestBegin(now)
	for i := 1; i < len(s.queue); {
		job := s.queue[i]
		n := s.nodes[job]
		switch {
		case n > s.machine.free:
			i++
		case now+s.Jobs[job].Duration <= begin:
			s.dispatchJob(now, i)
		case n <= spare:
			spare -= n
			s.dispatchJob(now, i)
		default:
			i++
		}
	}
}

// latestBegin is when the first job of the queue can begin at the latest, and how many nodes
// it leaves then.
func (s *simulation) latestBegin(now time.Duration) (begin time.Duration, spare int) {
	type end struct {
		at    time.Duration
		nodes int
	}
	var ends []end
	for job, hosts := range s.taken {
		if hosts != nil {
			ends = append(ends, end{s.result.Records[job].End, len(hosts)})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	free, begin := s.machine.free, now
	for _, e := range ends {
		if free >= s.nodes[s.queue[0]] {
			break
		}
		free, begin = free+e.nodes, e.at
	}
	return begin, free - s.nodes[s.queue[0]]
}

// dispatchJob gives nodes to a job of the queue.
func (s *simulation) dispatchJob(now time.Duration, at int) {
	job := s.queue[at]
	s.queue = slices.Delete(s.queue, at, at+1)
	if s.Selector == "random" {
		s.taken[job] = s.machine.selectRandom(s.nodes[job], s.rng)
	} else {
		s.taken[job] = s.machine.selectLinear(s.nodes[job])
	}
	s.machine.markBusy(s.taken[job])
	r := &s.result.Records[job]
	r.Start, r.End = now, now+s.Jobs[job].Duration
	s.result.Order = append(s.result.Order, job)
	s.pushEvent(now, started, job)
}

// startJob puts a job's traffic on the links.
func (s *simulation) startJob(job int) error {
	r := &s.result.Records[job]
	for _, h := range s.taken[job] {
		r.Hosts = append(r.Hosts, s.Graph.Hosts()[h])
	}
	flows := s.flowsBetween(s.Jobs[job].Pattern, r.Hosts)
	if s.Jobs[job].Write > 0 {
		var err error
		if flows, r.Imbalance, err = s.writerFlows(job, r.Hosts); err != nil {
			return err
		}
	}
	var touched []int32
	err := s.router.Route(flows, s.load, func(f routing.Flow, path []int32) {
		r.Flows++
		r.Bytes += f.Bytes
		for _, c := range path {
			if s.flows[c] == 0 {
				touched = append(touched, c)
			}
			s.flows[c]++
			s.bytes[c] += f.Bytes
		}
		if s.OnPath != nil {
			s.OnPath(job, f, path)
		}
	})
	shares := make([]share, len(touched))
	for i, c := range touched {
		shares[i] = share{c, s.flows[c], s.bytes[c]}
		s.flows[c], s.bytes[c] = 0, 0
	}
	s.shares[job] = shares
	s.pushEvent(r.End, finished, job)
	return err
}

// flowsBetween adds up a pattern's flows for each pair of hosts.
func (s *simulation) flowsBetween(p *pattern.Pattern, hosts []int32) []routing.Flow {
	at := make([]int32, p.Ranks)
	for rank := range at {
		at[rank] = hosts[hostOfRank(s.Placement, rank, s.Cores, len(hosts))]
	}
	flows := make([]routing.Flow, 0, len(p.Flows))
	for _, f := range p.Flows {
		if at[f.From] != at[f.To] {
			flows = append(flows, routing.Flow{From: at[f.From], To: at[f.To], Bytes: f.Bytes})
		}
	}
	return mergeFlows(flows)
}

// mergeFlows sorts flows, and adds up those of a pair of hosts. It takes flows.
func mergeFlows(flows []routing.Flow) []routing.Flow {
	slices.SortFunc(flows, func(a, b routing.Flow) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	kept := flows[:0]
	for _, f := range flows {
		if n := len(kept); n > 0 && kept[n-1].From == f.From && kept[n-1].To == f.To {
			kept[n-1].Bytes += f.Bytes
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// finishJob takes a job's traffic off the links, and frees its nodes.
func (s *simulation) finishJob(job int) {
	for _, sh := range s.shares[job] {
		s.load.Remove(sh.channel, sh.bytes, sh.flows)
	}
	if s.files != nil {
		s.files.closeFiles(job)
	}
	s.machine.markFree(s.taken[job])
	s.taken[job], s.shares[job] = nil, nil
}
