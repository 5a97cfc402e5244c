package svgplot

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/internal/clitest"
	"exnet/internal/display"
)

var update = flag.Bool("update", false, "write the golden files anew")

func exampleLines() Lines {
	return Lines{
		Title: "Bandwidth <over> size", Desc: "two paths & a value",
		X: Axis{Label: "message size (bytes)", Log: true, Format: display.Size},
		Y: Axis{Label: "GB/s", Log: true},
		Series: []Series{
			{"veth", 7, []Point{{64, 0.1, 0.09, 0.12}, {4096, 2, 1.5, 2.2}, {65536, 6, 6, 6}, {1 << 20, 5.5, 5, 6}}},
			{"exn:napi", 0, []Point{{64, 0.05, 0, 0}, {65536, 4, 3, 5}}},
			{"nothing", 1, nil},
		},
		Refs: []Ref{{7.9, "thesis, one stream: 7.9"}, {8.3, "thesis, tuned: 8.3"}},
	}
}

func exampleBars() Bars {
	return Bars{
		Title: "Connections", X: Axis{Label: "connections a second"},
		Bars: []Bar{{"lo", 7, 21000, 20000, 22000}, {"veth", 6, 18000, 0, 0}, {"ds & <co>", 2, 23456, 1, 30000}},
		Refs: []Ref{{19000, "a bound"}},
	}
}

func TestGolden(t *testing.T) {
	clitest.Golden(t, *update, "lines.svg", exampleLines().SVG())
	linear := exampleLines()
	linear.X, linear.Y.Log, linear.Series = Axis{Label: "x"}, false, linear.Series[:2]
	clitest.Golden(t, *update, "linear.svg", linear.SVG())
	clitest.Golden(t, *update, "bars.svg", exampleBars().SVG())
	logBars := exampleBars()
	logBars.X.Log, logBars.Refs = true, nil
	clitest.Golden(t, *update, "logbars.svg", logBars.SVG())
}

// TestWellFormed: it is XML, and no coordinate is what a browser cannot read.
func TestWellFormed(t *testing.T) {
	zero := exampleLines()
	zero.Series[0].Points = []Point{{0, 0, 0, 0}, {-1, -1, 0, 0}}
	one := Lines{X: Axis{Log: true}, Y: Axis{Log: true}, Series: []Series{{"a", 99, []Point{{5, 5, 5, 5}}}}}
	for name, text := range map[string]string{
		"lines": exampleLines().SVG(), "bars": exampleBars().SVG(), "empty": Lines{}.SVG(),
		"no bars": Bars{}.SVG(), "no bars, log": Bars{X: Axis{Log: true}}.SVG(), "zero": zero.SVG(), "one": one.SVG(),
		"zero bar": Bars{Bars: []Bar{{"a", 0, 0, 0, 0}}}.SVG(),
	} {
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, text)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %s in\n%s", name, bad, text)
			}
		}
	}
}

func TestSteps(t *testing.T) {
	for _, tt := range []struct{ v, up, down float64 }{
		{1, 1, 1}, {1.1, 2, 1}, {3, 5, 2}, {7, 10, 5}, {0.03, 0.05, 0.02}, {20, 20, 20}, {999, 1000, 500},
	} {
		if up, down := stepUp(tt.v), stepDown(tt.v); math.Abs(up/tt.up-1) > 1e-9 || math.Abs(down/tt.down-1) > 1e-9 {
			t.Errorf("%v: %v and %v, want %v and %v", tt.v, up, down, tt.up, tt.down)
		}
	}
	for _, tt := range []struct{ v, want float64 }{{5, 5}, {5.1, 6}, {47, 50}, {0.3, 0.3}, {0, 1}} {
		if got := roundUp(tt.v); math.Abs(got/tt.want-1) > 1e-9 {
			t.Errorf("roundUp(%v) = %v, want %v", tt.v, got, tt.want)
		}
	}
}

func TestScale(t *testing.T) {
	lin := newScale(Axis{}, 0, 10, 100, 0)
	log := newScale(Axis{Log: true}, 1, 100, 0, 200)
	for _, tt := range []struct {
		s       scale
		v, want float64
	}{{lin, 0, 100}, {lin, 10, 0}, {lin, 5, 50}, {log, 1, 0}, {log, 10, 100}, {log, 100, 200}, {log, 0, 0}} {
		if got := tt.s.placeOf(tt.v); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%v is at %v, want %v", tt.v, got, tt.want)
		}
	}
	if want := []float64{0, 2, 4, 6, 8, 10}; !slices.Equal(lin.ticks, want) {
		t.Errorf("ticks %v, want %v", lin.ticks, want)
	}
	if want := []float64{1, 2, 5, 10, 20, 50, 100}; !slices.Equal(log.ticks, want) {
		t.Errorf("ticks %v, want %v", log.ticks, want)
	}
}

func TestLegendRows(t *testing.T) {
	var many []entry
	for range 12 {
		many = append(many, entry{0, "some name"})
	}
	rows := legendRows(many)
	n := 0
	for _, r := range rows {
		n += len(r)
	}
	if n != 12 || len(rows) < 3 || len(legendRows(nil)) != 0 || len(legendRows(many[:1])) != 1 {
		t.Errorf("%d entries in %d rows", n, len(rows))
	}
}

// The name of a bar has room in the larger letters of a narrow screen, too.
func TestBarNames(t *testing.T) {
	svg := Bars{Bars: []Bar{{"dmodk", 0, 1, 0, 0}, {"a longer name", 0, 2, 0, 0}}}.SVG()
	for _, m := range regexp.MustCompile(`<text x="([^"]*)"[^>]*text-anchor="end"[^>]*>([^<]*)<`).FindAllStringSubmatch(svg, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if room := 13.5 / fontSize * charWidth * float64(len(m[2])); err != nil || x < room {
			t.Errorf("%q has %v units, of %v", m[2], x, room)
		}
	}
}
