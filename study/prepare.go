package study

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"exnet/fabric"
	"exnet/fabric/graph"
	"exnet/fabric/pattern"
	"exnet/fabric/routing"
	"exnet/study/storage"
)

// unknown is how many cores a host has in a scenario in which that is a mistake.
const unknown = -1

// cache keeps what several runs use.
type cache struct {
	graphs   map[string]*graph.Graph
	patterns map[patternKey]recorded
	flows    int // of all patterns
	most     int // flows; more are not kept
}

type patternKey struct {
	name   string
	params pattern.Params
}

type recorded struct {
	pattern  *pattern.Pattern
	duration time.Duration // 0: nothing is known
}

// Prepare makes the configuration of a run. The error has a line for each mistake, with
// the file's name and the line.
func (r Setting) Prepare() (Config, error) {
	var errs []error
	s := r.scenario
	get := func(key string) any { v, _ := r.valueAndLine(0, key); return v }
	c := Config{
		Seed:      uint64(get("seed").(int64)),
		Scheduler: get("scheduler").(string), Selector: get("selector").(string),
		Placement: get("placement").(string), Router: get("router").(string),
	}
	if cores, known := get("cores").(int64); known {
		c.Cores = int(cores)
	} else {
		c.Cores = unknown
	}
	if name, line := r.valueAndLine(0, "topology"); name != nil {
		var err error
		if c.Graph, err = s.findGraph(name.(string)); err != nil {
			errs = append(errs, s.errorAt(line, "topology", err))
		}
	}
	if c.Graph != nil {
		if c.Cores == 0 {
			c.Cores = coresOf(c.Graph)
		}
		if _, err := routing.New(c.Router, c.Graph, 0); err != nil {
			_, line := r.valueAndLine(0, "router")
			errs = append(errs, s.errorAt(line, "router", err))
		}
	}
	if s.storage {
		if err := r.readStorage(&c); err != nil {
			errs = append(errs, err)
		}
	}
	sum, flows, seen := uint64(0), 0, make(map[*pattern.Pattern]bool)
	for job := 1; job <= s.jobs; job++ {
		jobs, err := r.makeJobs(job, c)
		if len(jobs) > 0 && !seen[jobs[0].Pattern] {
			seen[jobs[0].Pattern] = true
			if flows += len(jobs[0].Pattern.Flows); flows > s.cache.most {
				_, line := r.valueAndLine(job, "pattern")
				return c, errors.Join(append(errs, s.mistakeAt(line, "the patterns of the jobs up to here have more than %d flows", s.cache.most))...)
			}
		}
		if len(jobs) > 0 {
			high, low := bits.Mul64(jobs[0].totalBytes(), uint64(len(jobs)))
			if sum += min(low, maxBytes+1); high > 0 || sum > maxBytes {
				_, line := r.valueAndLine(job, "pattern")
				err, sum = s.mistakeAt(line, "%s: more than 2^62 bytes in all jobs", jobs[0].Name), maxBytes
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
		c.Jobs = append(c.Jobs, jobs...)
	}
	return c, errors.Join(errs...)
}

// readStorage reads [storage] into c. While a value of it is wrong, of which parse tells, there is
// none.
func (r Setting) readStorage(c *Config) error {
	var line int
	read := func(key string) int {
		v, at := r.valueAndLine(ofStorage, key)
		line = max(line, at)
		n, _ := v.(int64)
		return int(n)
	}
	shape := storage.Shape{Routers: read("routers"), Groups: read("groups"), Servers: read("servers"), Targets: read("targets")}
	if min(shape.Routers, shape.Groups, shape.Servers, shape.Targets) == 0 {
		return nil
	}
	if err := shape.Check(); err != nil {
		return r.scenario.errorAt(line, "storage", err)
	}
	if c.Graph != nil && shape.Routers >= len(c.Graph.Hosts()) {
		return r.scenario.mistakeAt(line, "storage: %d routers leave no host of %d for jobs", shape.Routers, len(c.Graph.Hosts()))
	}
	c.Storage = shape
	return nil
}

// maxBytes bounds the sum of all jobs, which may be the load of one channel.
const maxBytes = 4 * pattern.MaxBytes

// errorAt says where in the scenario something is wrong. Mistakes of other files have
// places of their own, one a line.
func (s *Scenario) errorAt(line int, key string, err error) error {
	var errs []error
	for text := range strings.SplitSeq(err.Error(), "\n") {
		for _, kind := range []error{graph.ErrInvalid, fabric.ErrInvalid} { // which goes without saying here
			text = strings.TrimSuffix(text, ": "+kind.Error())
		}
		errs = append(errs, s.mistakeAt(line, "%s: %s", key, text))
	}
	return errors.Join(errs...)
}

func (s *Scenario) findGraph(name string) (*graph.Graph, error) {
	if g := s.cache.graphs[name]; g != nil {
		return g, nil
	}
	g, err := graph.Parse(name, s.dir)
	if err != nil {
		return nil, err
	}
	if s.cache.graphs == nil {
		s.cache.graphs = make(map[string]*graph.Graph)
	}
	s.cache.graphs[name] = g
	return g, nil
}

// coresOf is how many cores every host of a network has at least.
func coresOf(g *graph.Graph) int {
	least := 1 << 30
	for _, h := range g.Hosts() {
		least = min(least, max(g.Vertices()[h].Cores, 1))
	}
	return least
}

// makeJobs makes the jobs of a [[job]].
func (r Setting) makeJobs(job int, c Config) (jobs []Job, err error) {
	s := r.scenario
	get := func(key string) any { v, _ := r.valueAndLine(job, key); return v }
	name, line := r.valueAndLine(job, "pattern")
	ranks, ranksKnown := get("ranks").(int64)
	flows, flowsKnown := get("flows").(int64)
	if name == nil || !isFile(name.(string)) && !(ranksKnown && flowsKnown) {
		return nil, nil // a mistake, of which parse tells
	}
	rec, err := s.findPattern(name.(string), pattern.Params{
		Ranks: int(ranks), Bytes: get("bytes").(uint64), Flows: int(flows),
		Class: get("class").(string)[0], Seed: c.Seed,
	})
	if err != nil {
		return nil, s.errorAt(line, "pattern", err)
	}
	j := Job{Name: get("name").(string), Pattern: rec.pattern, Duration: get("duration").(time.Duration)}
	if name == write {
		if !s.storage {
			return nil, s.mistakeAt(line, "pattern: %s needs a table [storage]", write)
		}
		j.Write, j.Target = get("bytes").(uint64), get("target").(string)
	}
	if j.Name == "" {
		j.Name = fmt.Sprintf("%s-%d", filepath.Base(name.(string)), rec.pattern.Ranks)
	}
	if j.Duration == 0 {
		j.Duration = max(rec.duration, time.Second)
	}
	if c.Graph != nil && c.Cores != unknown && (rec.pattern.Ranks+c.Cores-1)/c.Cores > c.jobHosts() {
		return nil, s.mistakeAt(line, "%s has %d ranks, more than %d hosts of %d cores hold", j.Name, rec.pattern.Ranks, c.jobHosts(), c.Cores)
	}
	kind, d, err := parseSubmit(get("submit").(string))
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(c.Seed, uint64(job)+2))
	at := time.Duration(0)
	for range int(get("count").(int64)) {
		switch kind {
		case "at":
			at = d
		case "exp":
			at += time.Duration(rng.ExpFloat64() * float64(d))
		}
		j.Submit = at
		jobs = append(jobs, j)
		if kind == "every" {
			at += d
		}
	}
	return jobs, nil
}

// findPattern makes or reads a pattern: what looks like a file is one.
func (s *Scenario) findPattern(name string, p pattern.Params) (recorded, error) {
	file := isFile(name)
	if file {
		p = pattern.Params{}
	}
	key := patternKey{name, p}
	if rec, ok := s.cache.patterns[key]; ok {
		return rec, nil
	}
	var rec recorded
	var err error
	switch {
	case file:
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.dir, path)
		}
		rec.pattern, rec.duration, err = pattern.ReadFile(path)
	case p.Ranks == 0:
		err = errors.New("ranks is missing")
	case name == write:
		rec.pattern = &pattern.Pattern{Ranks: p.Ranks}
	default:
		rec.pattern, err = pattern.Make(name, p)
	}
	if err != nil {
		return rec, err
	}
	if s.cache.flows += len(rec.pattern.Flows); s.cache.patterns == nil || s.cache.flows > s.cache.most {
		s.cache.patterns, s.cache.flows = make(map[patternKey]recorded), len(rec.pattern.Flows)
	}
	s.cache.patterns[key] = rec
	return rec, nil
}
