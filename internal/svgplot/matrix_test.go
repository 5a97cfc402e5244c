package svgplot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
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

// A chord diagram has an arrowhead at the receiver of each ribbon, above all ribbons, and a heat
// map is white where nothing was sent.
func TestDirections(t *testing.T) {
	m := Matrix{Title: "t", Names: []string{"a", "b", "c"}, Values: [][]float64{{0, 2, 1}, {0, 0, 3}, {0, 0, 0}}}
	if n := strings.Count(m.Chord(), "pointer-events=\"none\"/>"); n != 3 {
		t.Errorf("%d arrowheads for 3 ribbons", n)
	}
	if svg := m.Chord(); strings.LastIndex(svg, "fill-opacity") > strings.Index(svg, `pointer-events="none"`) {
		t.Error("a ribbon covers an arrowhead")
	}
	if n := strings.Count(m.Heat(), `fill="#fff"><title>`); n != 6 {
		t.Errorf("%d white fields, want 6", n)
	}
}

// A ribbon is as wide where it ends as where it begins, on the arcs of its two names, and one
// that is too thin to be seen has an edge.
func TestRibbons(t *testing.T) {
	m := Matrix{Title: "t", Names: []string{"a", "b", "c"}, Values: [][]float64{{0, 1e6, 1}, {5e5, 0, 0}, {0, 3e6, 2e6}}}
	_, sum := m.largestAndSum()
	arcs, ribbons := m.placeChords(sum)
	if len(ribbons) != 5 {
		t.Fatalf("%d ribbons", len(ribbons))
	}
	var used [][2]float64
	for _, r := range ribbons {
		for _, end := range []struct {
			name int
			from float64
		}{{r.sender, r.from}, {r.receiver, r.to}} {
			a := arcs[end.name]
			if end.from < a[0]-1e-9 || end.from+r.width > a[1]+1e-9 {
				t.Errorf("%+v has an end outside of the arc %v of %s", r, a, m.Names[end.name])
			}
			for _, u := range used {
				if end.from < u[1]-1e-9 && u[0] < end.from+r.width-1e-9 {
					t.Errorf("%+v has an end on that of another", r)
				}
			}
			used = append(used, [2]float64{end.from, end.from + r.width})
		}
		if share := m.Values[r.sender][r.receiver] / sum; math.Abs(r.width/ribbons[0].width-share/(3e6/sum)) > 1e-9 {
			t.Errorf("%+v does not have its share %v", r, share)
		}
	}
	svg := m.Chord()
	if edges := strings.Count(svg, `stroke="hsl(0 65% 40%)"><title>a to c: 1<`); edges != 1 || strings.Count(svg, `stroke="none"><title>`) != 4 {
		t.Errorf("%d edges of the thin ribbon in %s", edges, svg)
	}
}
