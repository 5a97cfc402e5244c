package coredist

import (
	"errors"
	"slices"
	"testing"
)

func TestRounds(t *testing.T) {
	errCut := errors.New("cable cut")
	for _, tt := range []struct {
		name  string
		looks string // n: near, f: far, the last one for ever
		n     int
		fails int // this round; -1: none
		want  []int
		cores string
	}{
		{"always near", "n", 3, -1, []int{0, 1, 2}, Near},
		{"one round while the CPUs move", "nnffff", 3, -1, []int{2, 3, 4}, Far},
		{"a moment of far", "nnfnnnn", 3, -1, []int{0, 3, 4}, Near},
		{"never twice the same: those that moved", "nfnfnfnfnf", 3, -1, []int{0, 1, 2}, Near},
		{"after three times as many, what most had", "nnnfnffnfn", 3, -1, []int{0, 1}, Near},
		{"an error", "n", 3, 1, []int{0, 1}, Near},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := 0
			look := func() Distance {
				c := tt.looks[min(i, len(tt.looks)-1)]
				i++
				return Distance{Cores: map[byte]string{'n': Near, 'f': Far}[c]}
			}
			kept, at, err := Rounds(tt.n, look, func(i int) (map[string]int, error) {
				if i == tt.fails {
					return map[string]int{"x": i}, errCut
				}
				return map[string]int{"x": i}, nil
			})
			if !slices.Equal(kept["x"], tt.want) || at.Cores != tt.cores || (err != nil) != (tt.fails >= 0) {
				t.Errorf("kept %v at %q, error %v; want %v at %q", kept, at.Cores, err, tt.want, tt.cores)
			}
		})
	}
}
