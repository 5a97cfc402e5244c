package report

import (
	"testing"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/svgplot"
)

// Each path has one colour on the whole page, and no other path has it. exn and
// exn:napi are the same.
func TestColours(t *testing.T) {
	used := make(map[int]string)
	for _, k := range paths.Kinds() {
		if k.Name == "exn" {
			continue
		}
		c, ok := pathColours[k.Name]
		if !ok {
			t.Errorf("path %s has no colour", k.Name)
			continue
		}
		if other := used[c]; other != "" || c >= svgplot.Colours {
			t.Errorf("path %s has colour %d, as %q", k.Name, c, other)
		}
		used[c] = k.Name
	}
}
