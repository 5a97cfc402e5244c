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
	m := Matrix{Title: "a < b", Note: "but > c", Names: []string{"one", "<two>", "three"}, Values: [][]float64{{0, 7, 0}, {1, 0, 3}, {0, 0, 0}}}
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
		if name != "nothing" && !strings.Contains(svg, ">but &gt; c<") {
			t.Errorf("%s: it does not say what it leaves out", name)
		}
	}
	for _, want := range []string{">7</text>", ">3.5</text>", ">1</text>"} { // in fields, and of the scale
		if !strings.Contains(m.Heat(), want) {
			t.Errorf("the heat map does not have %s", want)
		}
	}
	for _, want := range []string{">one: 7</text>", ">&lt;two&gt;: 4</text>", ">three: 0</text>"} {
		if !strings.Contains(m.Chord(), want) {
			t.Errorf("the circle does not have %s", want)
		}
	}
	if svg := (Matrix{Names: []string{"a"}, Values: [][]float64{{0}}}).Heat(); !strings.Contains(svg, "nothing was sent") || strings.Contains(svg, "NaN") {
		t.Error(svg)
	}
}

// A chord diagram has an arrowhead at the receiver of each ribbon, and a heat map is white where
// nothing was sent.
func TestDirections(t *testing.T) {
	m := Matrix{Title: "t", Names: []string{"a", "b", "c"}, Values: [][]float64{{0, 2, 1}, {0, 0, 3}, {0, 0, 0}}}
	if n := strings.Count(m.Chord(), "pointer-events=\"none\"/>"); n != 3 {
		t.Errorf("%d arrowheads for 3 ribbons", n)
	}
	if n := strings.Count(m.Heat(), `fill="#fff"><title>`); n != 6 {
		t.Errorf("%d white fields, want 6", n)
	}
}
