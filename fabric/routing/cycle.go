package routing

// Hop is a channel with the virtual channel that a packet waits in there.
type Hop struct {
	Channel int32
	Virtual uint8
}

// Dependencies are which hops wait for which: a packet that holds one asks for the
// next of its path. A cycle among them can be a deadlock (Dally and Seitz, 1987).
type Dependencies struct {
	next map[Hop]map[Hop]int // with the number of paths
}

// NewDependencies returns none.
func NewDependencies() *Dependencies {
	return &Dependencies{make(map[Hop]map[Hop]int)}
}

// Add enters a path.
func (d *Dependencies) Add(path []Hop) {
	for i := 1; i < len(path); i++ {
		m := d.next[path[i-1]]
		if m == nil {
			m = make(map[Hop]int)
			d.next[path[i-1]] = m
		}
		m[path[i]]++
	}
}

// Remove takes out a path that was entered.
func (d *Dependencies) Remove(path []Hop) {
	for i := 1; i < len(path); i++ {
		m := d.next[path[i-1]]
		if m[path[i]]--; m[path[i]] == 0 {
			delete(m, path[i])
		}
	}
}

// Try enters a path if no cycle comes of it, and reports whether it did.
func (d *Dependencies) Try(path []Hop) bool {
	d.Add(path)
	for i := 1; i < len(path); i++ {
		if d.reaches(path[i], path[i-1]) {
			d.Remove(path)
			return false
		}
	}
	return true
}

// Cyclic reports whether there is a cycle: hops that nothing waits for are taken away
// until none is left, or all that are wait for each other.
func (d *Dependencies) Cyclic() bool {
	waits := make(map[Hop]int)
	for from, m := range d.next {
		waits[from] += 0
		for to := range m {
			waits[to]++
		}
	}
	var free []Hop
	for h, n := range waits {
		if n == 0 {
			free = append(free, h)
		}
	}
	left := len(waits)
	for ; len(free) > 0; left-- {
		h := free[len(free)-1]
		free = free[:len(free)-1]
		for to := range d.next[h] {
			if waits[to]--; waits[to] == 0 {
				free = append(free, to)
			}
		}
	}
	return left > 0
}

// reaches reports whether to depends on from, through others, too.
func (d *Dependencies) reaches(from, to Hop) bool {
	seen := map[Hop]bool{from: true}
	stack := []Hop{from}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at == to {
			return true
		}
		for h := range d.next[at] {
			if !seen[h] {
				seen[h] = true
				stack = append(stack, h)
			}
		}
	}
	return false
}
