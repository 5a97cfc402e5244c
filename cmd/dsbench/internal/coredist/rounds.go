package coredist

// mostRounds is how many rounds there are at most for each that counts.
const mostRounds = 3

// Rounds calls round with 0, 1 and so on until n of the calls were at one distance of the CPUs, as
// look tells it, both before and after the call. It returns what they returned, and that distance.
// A host moves virtual CPUs within seconds, and a median over both distances is a figure of
// neither. After 3n calls it returns those at the distance that most had, and if the CPUs moved
// during each of them, the first n.
//
// An error of round ends it; kept are all that began then.
func Rounds[T any](n int, look func() Distance, round func(i int) (T, error)) (kept []T, at Distance, err error) {
	before := look()
	at = before
	still := make(map[string][]T) // by the distance
	var all []T
	for i := 0; i < mostRounds*n && len(kept) < n; i++ {
		taken, err := round(i)
		all = append(all, taken)
		if err != nil {
			return all, before, err
		}
		after := look()
		if name := after.Cores; name == before.Cores {
			still[name] = append(still[name], taken)
			if len(still[name]) > len(kept) {
				kept, at = still[name], after
			}
		}
		before = after
	}
	if len(kept) == 0 {
		kept = all[:min(n, len(all))]
	}
	return kept, at, nil
}

// At is d with the distance of at, and d's own figures of memory.
func (d Distance) At(at Distance) Distance {
	at.Hot, at.Cold = d.Hot, d.Cold
	return at
}

// Between measures the distance of two CPUs, as Measure does, but not how fast memory is copied.
func Between(a, b int) Distance { return way(a, b) }
