package study

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Names of the algorithms.
var (
	Schedulers = []string{"fcfs", "backfill"}
	Selectors  = []string{"linear", "random"}
	Placements = []string{"block", "cyclic"}
)

// machine is which hosts are free, by their position among the hosts.
type machine struct {
	busy []bool
	free int
}

func newMachine(hosts int) *machine { return &machine{make([]bool, hosts), hosts} }

// markBusy marks hosts as busy.
func (m *machine) markBusy(hosts []int) {
	for _, h := range hosts {
		m.busy[h] = true
	}
	m.free -= len(hosts)
}

// markFree marks hosts as free.
func (m *machine) markFree(hosts []int) {
	for _, h := range hosts {
		m.busy[h] = false
	}
	m.free += len(hosts)
}

// run is hosts in a row that are free.
type run struct{ first, length int }

// selectLinear selects n hosts: from the shortest run of free ones that has enough, else
// from the longest runs on. n is at most m.free.
func (m *machine) selectLinear(n int) []int {
	var runs []run
	for i := 0; i < len(m.busy); i++ {
		if m.busy[i] {
			continue
		}
		first := i
		for i < len(m.busy) && !m.busy[i] {
			i++
		}
		runs = append(runs, run{first, i - first})
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(b.length, a.length) })
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].length >= n {
			best := slices.IndexFunc(runs, func(r run) bool { return r.length == runs[i].length })
			runs = runs[best : best+1] // the first of that length
			break
		}
	}
	hosts := make([]int, 0, n)
	for _, r := range runs {
		for i := 0; i < r.length && len(hosts) < n; i++ {
			hosts = append(hosts, r.first+i)
		}
	}
	return hosts
}

// selectRandom selects n different hosts, in random order. n is at most m.free.
func (m *machine) selectRandom(n int, rng *rand.Rand) []int {
	free := make([]int, 0, m.free)
	for i, b := range m.busy {
		if !b {
			free = append(free, i)
		}
	}
	for i := range n {
		j := i + rng.IntN(len(free)-i)
		free[i], free[j] = free[j], free[i]
	}
	return free[:n]
}

// hostOfRank returns the position in a job's hosts of a rank: block fills one host after
// the other, cyclic gives each one a rank in turn.
func hostOfRank(placement string, rank, cores, hosts int) int {
	if placement == "cyclic" {
		return rank % hosts
	}
	return rank / cores
}
