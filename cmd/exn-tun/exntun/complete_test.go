package exntun

import (
	"slices"
	"strings"
	"testing"
)

// TestComplete asks as the scripts of all shells do: what may follow these words.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		words string // the last one is being typed; "_": nothing is, yet
		want  string // "": no values
	}{
		{"set _", "mode=napi mode=interrupt mode=busy adaptive=on adaptive=off coalesce-usecs= coalesce-frames= link"},
		{"set link 1-2 _", "up down"},
		{"status --log-level _", "debug info warn error"},
		{"up --log-format _", "text json"},
		{"up --mode _", "napi interrupt busy"},
		{"up --topology _", "torus: mesh:"},
		{"route reserve --router _", "refine minmax minsum dmodk smodk random alg3"},
		{"route reserve --primitive _", "bcast reduce allreduce alltoall ring halo2d halo3d"},
		{"status --fabric no-such --node _", ""},
	} {
		args := append([]string{"__complete"}, strings.Fields(strings.ReplaceAll(c.words, "_", ""))...)
		if strings.HasSuffix(c.words, "_") {
			args = append(args, "")
		}
		status, stdout, _ := run(t.Context(), args...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		got := lines[:len(lines)-1] // the last is the directive
		if want := strings.Fields(c.want); status != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: status %d, %q, want %q", c.words, status, got, want)
		}
	}
}
