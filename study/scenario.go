package study

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"exnet/internal/infile"
)

// Scenario is a file that says what to simulate. Every value may be a list: there is a
// run for each combination.
//
//	topology  = ["tree:4x5/2", "torus:4x4"]
//	cores     = 8
//	placement = ["block", "cyclic"]
//	router    = ["dmodk", "minmax"]
//	[[job]]
//	pattern = "cg"
//	ranks   = 128
//
// With a table [storage] (routers, groups, servers, targets) jobs may have the pattern "write".
type Scenario struct {
	file    string
	dir     string
	entries []entry       // of the machine, then of each job
	index   map[where]int // in entries
	lists   []int         // the entries with more than one value, in their order
	jobs    int
	storage bool // there is a [storage]
	cache   cache
}

// entry is a key with its values.
type entry struct {
	job    int // 0: the machine; ofStorage; else the number of the job
	key    string
	line   int   // 0: it is not in the file
	values []any // at least one; nil: unknown, by a mistake
	list   bool
	place  int // in Scenario.lists, if it has more than one value
}

// ofNothing stands for the number of a job in an unknown table.
const ofNothing = -2

// ofStorage stands for the number of a job in the entries of [storage].
const ofStorage = -1

// Bounds of a scenario.
const (
	// MaxRuns is how many runs it has at most.
	MaxRuns = 4096
	// MaxJobs is how many jobs one run has at most, counts included.
	MaxJobs = 1 << 18
	// MaxSubmits is how many jobs all runs have at most, and how many values of lists.
	MaxSubmits = 1 << 22
	// MaxFlows is how many flows the patterns of one run have at most.
	MaxFlows = 1 << 26
)

// maxFile bounds the size of a scenario, in bytes.
const maxFile = 1 << 20

// ReadScenario reads a scenario file and all files that it names. The error has a line for
// each mistake of any run, with the file's name and the line.
func ReadScenario(path string) (*Scenario, error) {
	data, err := infile.Read(path)
	if err != nil {
		return nil, err
	}
	s, err := parseScenario(path, data)
	if s == nil {
		return nil, err
	}
	if err := errors.Join(err, s.checkRuns()); err != nil {
		return nil, err
	}
	return s, nil
}

// parseScenario reads the content of a scenario file at path, and no other file: Setting.Prepare
// does. With an error it returns what is right of the scenario, or nil if it is not TOML.
func parseScenario(path string, data []byte) (*Scenario, error) {
	s := &Scenario{file: path, dir: filepath.Dir(path), index: make(map[where]int), cache: cache{most: MaxFlows}}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", s.file, ErrInvalid, maxFile)
	}
	if err := infile.CheckTOML(string(data)); err != nil {
		return nil, s.mistakeAt(0, "%v", err)
	}
	var content map[string]any
	if _, err := toml.Decode(string(data), &content); err != nil {
		if e, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, s.mistakeAt(e.Position.Line, "%s", e.Message)
		}
		return nil, s.mistakeAt(0, "%v", err)
	}
	lines := linesOf(string(data))
	errs := s.enterKeys(content, lines)
	runs, err := s.countRuns()
	return s, errors.Join(append(errs, err, s.countJobs(runs, lines))...)
}

// checkRuns prepares all runs, and returns each mistake once.
func (s *Scenario) checkRuns() error {
	var errs []error
	seen := make(map[string]bool)
	for _, r := range s.Runs() {
		_, err := r.Prepare()
		if err == nil {
			continue
		}
		for text := range strings.SplitSeq(err.Error(), "\n") {
			if !seen[text] {
				seen[text] = true
				errs = append(errs, mistake(text))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Scenario) mistakeAt(line int, format string, args ...any) error {
	place := s.file
	if line > 0 {
		place = fmt.Sprintf("%s:%d", s.file, line)
	}
	return mistake(place + ": " + fmt.Sprintf(format, args...))
}

// mistake is something wrong in a scenario.
type mistake string

func (m mistake) Error() string { return string(m) }

// Is reports that a mistake is ErrInvalid.
func (m mistake) Is(target error) bool { return target == ErrInvalid }

// where is a place for a key in the file.
type where struct {
	job int
	key string
}

// linesOf finds the line of each key.
func linesOf(text string) map[where]int {
	lines := make(map[where]int)
	section, jobs := 0, 0
	for k := range infile.TOMLKeys(text) {
		w := where{section, k.Name}
		if k.Name == "" {
			section = ofNothing
			switch {
			case k.Table == "job" && k.Array:
				jobs++
				section = jobs
			case k.Table == "storage":
				section = ofStorage
			}
			w = where{section, ""}
			if section == ofNothing {
				w = where{0, k.Table}
			}
		}
		if lines[w] == 0 {
			lines[w] = k.Line
		}
	}
	return lines
}

// enterKeys enters all keys, in the order of keys, and those that are left out with their
// defaults.
func (s *Scenario) enterKeys(content map[string]any, lines map[where]int) (errs []error) {
	errs = s.readSection(0, content, machineKeys, lines)
	jobs, ok := content["job"].([]map[string]any)
	if content["job"] != nil && !ok {
		errs = append(errs, s.mistakeAt(lines[where{0, "job"}], "job: write a table of its own for each, [[job]]"))
	} else if len(jobs) == 0 {
		errs = append(errs, s.mistakeAt(0, "no job: add a [[job]] with a pattern"))
	}
	if content["storage"] != nil {
		table, ok := content["storage"].(map[string]any)
		if !ok {
			errs = append(errs, s.mistakeAt(lines[where{0, "storage"}], "storage: write a table, [storage]"))
		}
		s.storage = ok
		if ok {
			errs = append(errs, s.readSection(ofStorage, table, storageKeys, lines)...)
		}
	}
	s.jobs = len(jobs)
	for i, job := range jobs {
		errs = append(errs, s.readSection(i+1, job, jobKeys, lines)...)
	}
	return errs
}

func (s *Scenario) readSection(job int, content map[string]any, keys []keyInfo, lines map[where]int) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		known := job == 0 && (name == "job" || name == "storage") || slices.ContainsFunc(keys, func(k keyInfo) bool { return k.name == name })
		if !known {
			errs = append(errs, s.mistakeAt(lines[where{job, name}], "unknown key %q: use %s", name, keyNames(keys)))
		}
	}
	for _, k := range keys {
		e := entry{job: job, key: k.name, line: lines[where{job, k.name}]}
		value, set := content[k.name]
		list, isList := value.([]any)
		switch {
		case !set && k.initial == nil:
			errs = append(errs, s.mistakeAt(lines[where{job, ""}], "%s is missing", k.name))
		case !set:
			e.values = []any{k.initial}
		case isList && len(list) == 0:
			errs = append(errs, s.mistakeAt(e.line, "%s: the list is empty", k.name))
		case !isList:
			list = []any{value}
		}
		e.list = isList
		for _, v := range list {
			checked, err := k.check(v)
			if err != nil {
				errs = append(errs, s.mistakeAt(e.line, "%s: %v", k.name, err))
				continue
			}
			e.values = append(e.values, checked)
		}
		switch {
		case len(e.values) > 0:
		case k.decides:
			e.values = []any{nil}
		default:
			e.values = []any{k.initial}
		}
		s.index[where{job, k.name}] = len(s.entries)
		s.entries = append(s.entries, e)
	}
	return errs
}

// countRuns checks how many runs there are. From a list with which they are too many on,
// only the first value counts.
func (s *Scenario) countRuns() (n int, err error) {
	n = 1
	for i := range s.entries {
		e := &s.entries[i]
		if n*len(e.values) <= MaxRuns {
			n *= len(e.values)
			if len(e.values) > 1 {
				e.place = len(s.lists)
				s.lists = append(s.lists, i)
			}
			continue
		}
		if err == nil {
			err = s.mistakeAt(e.line, "%s: more than %d combinations", e.key, MaxRuns)
		}
		e.values = e.values[:1]
	}
	return n, err
}

// countJobs checks how many jobs a run has, with the highest of each count, and all runs, with
// their lists. If they are too many, the jobs from there on and all runs but the first do not
// count.
func (s *Scenario) countJobs(runs int, lines map[where]int) (err error) {
	sum, lists := 0, 0
	defer func() {
		if err != nil {
			s.lists = nil
			for i := range s.entries {
				e := &s.entries[i]
				e.values, e.list = e.values[:1], false
			}
		}
	}()
	for i := range s.entries {
		e := &s.entries[i]
		if e.list {
			lists++
		}
		if lists*runs > MaxSubmits {
			return s.mistakeAt(e.line, "%s: %d lists for %d runs are too many: write single values without brackets", e.key, lists, runs)
		}
	}
	for job := 1; job <= s.jobs; job++ {
		e := s.entries[s.index[where{job, "count"}]]
		most := 0
		for _, v := range e.values {
			most = max(most, int(v.(int64)))
		}
		line := max(e.line, lines[where{job, ""}])
		sum += most
		if sum > MaxJobs {
			s.jobs = job - 1
			return s.mistakeAt(line, "more than %d jobs: use fewer, or a lower count", MaxJobs)
		}
		if sum*runs > MaxSubmits {
			s.jobs = job - 1
			return s.mistakeAt(line, "%d runs of %d jobs and more are over %d in all: use fewer jobs, or shorter lists",
				runs, sum, MaxSubmits)
		}
	}
	return nil
}

// Setting is one of each list's values.
type Setting struct {
	Number   int      // from 1
	Varied   []string // "router=minmax": the values of lists
	scenario *Scenario
	choice   []int // by list
}

// Runs returns a setting for each combination, the last list varying fastest.
func (s *Scenario) Runs() (runs []Setting) {
	choice := make([]int, len(s.lists))
	for {
		r := Setting{Number: len(runs) + 1, scenario: s, choice: slices.Clone(choice)}
		for _, e := range s.entries {
			if !e.list {
				continue
			}
			key := e.key
			switch {
			case e.job > 0:
				key = fmt.Sprintf("job%d.%s", e.job, key)
			case e.job == ofStorage:
				key = "storage." + key
			}
			r.Varied = append(r.Varied, fmt.Sprintf("%s=%v", key, r.choiceOf(e)))
		}
		runs = append(runs, r)
		i := len(choice) - 1
		for ; i >= 0; i-- {
			if choice[i]++; choice[i] < len(s.entries[s.lists[i]].values) {
				break
			}
			choice[i] = 0
		}
		if i < 0 {
			return runs
		}
	}
}

// Label is a short text for the run: what varies.
func (r Setting) Label() string {
	if len(r.Varied) == 0 {
		return "the only run"
	}
	values := make([]string, len(r.Varied))
	for i, v := range r.Varied {
		_, values[i], _ = strings.Cut(v, "=")
	}
	return strings.Join(values, " ")
}

// valueAndLine is the choice of a key, and its line.
func (r Setting) valueAndLine(job int, key string) (any, int) {
	i, ok := r.scenario.index[where{job, key}]
	if !ok {
		panic("study: no key " + key)
	}
	e := r.scenario.entries[i]
	return r.choiceOf(e), e.line
}

// choiceOf is the choice of an entry.
func (r Setting) choiceOf(e entry) any {
	if len(e.values) == 1 {
		return e.values[0]
	}
	return e.values[r.choice[e.place]]
}
