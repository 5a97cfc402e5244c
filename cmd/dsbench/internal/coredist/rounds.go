package coredist

// mostRounds is how many rounds there are at most for each that counts.
const mostRounds = 3

// Rounds calls round with 0, 1 and so on until n of the calls were at one distance of the CPUs, as
// look tells it, both before and after the call. It returns the values of these calls by their
// keys, and that distance. A host moves virtual CPUs within seconds, and a median over both
// distances is a figure of neither. After 3n calls it returns those at the distance that most
// had. If the CPUs moved during each call, it returns the first n.
//
// An error of round ends it; kept has all values until then.
func Rounds[K comparable, V any](n int, look func() Distance, round func(i int) (map[K]V, error)) (kept map[K][]V, at Distance, err error) {
	before := look()
	at = before
	still := make(map[string][]map[K]V) // by the distance
	var all, most []map[K]V
	for i := 0; i < mostRounds*n && len(most) < n; i++ {
		found, err := round(i)
		all = append(all, found)
		if err != nil {
			return mergeRounds(all), before, err
		}
		after := look()
		if name := after.Cores; name == before.Cores {
			still[name] = append(still[name], found)
			if len(still[name]) > len(most) {
				most, at = still[name], after
			}
		}
		before = after
	}
	if len(most) == 0 {
		most = all[:min(n, len(all))]
	}
	return mergeRounds(most), at, nil
}

func mergeRounds[K comparable, V any](rounds []map[K]V) map[K][]V {
	merged := make(map[K][]V)
	for _, found := range rounds {
		for k, v := range found {
			merged[k] = append(merged[k], v)
		}
	}
	return merged
}

// At is d with the distance of at, and d's own figures of memory.
func (d Distance) At(at Distance) Distance {
	at.Hot, at.Cold = d.Hot, d.Cold
	return at
}
