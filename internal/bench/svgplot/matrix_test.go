package svgplot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Drawings of a matrix are well formed, and each value can be read.
func TestMatrix(t *testing.T) {
	m := Matrix{Title: "a < b", Names: []string{"one", "<two>", "three"}, Values: [][]float64{{0, 7, 0}, {1, 0, 3}, {0, 0, 0}}}
	for name, svg := range map[string]string{"heat": m.Heat(), "chord": m.Chord(), "nothing": Matrix{Names: []string{"a"}, Values: [][]float64{{0}}}.Chord()} {
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a place that is none", name)
		}
		if name != "nothing" && !strings.Contains(svg, "one to &lt;two&gt;: 7") {
			t.Errorf("%s: the value 7 is not in it", name)
		}
	}
}
