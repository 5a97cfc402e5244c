package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/tcpbench"
)

// figures returns a path's figures one after the other.
func figures(v ...float64) func(int) (float64, error) {
	return func(int) (float64, error) {
		next := v[0]
		v = append(v[1:], next)
		return next, nil
	}
}

func examplePaths() []*fakePath {
	var log []string
	return []*fakePath{
		{name: "veth", log: &log, take: figures(50, 52, 48, 51, 49)},
		{name: "exn", log: &log, take: figures(30, 31, 12.5, 32, 20)}, // two disturbed runs: one would say nothing
		{name: "netstack", log: &log, take: figures(0.5, 0.5, 0.5, 0.5, 0.5)},
	}
}

// output runs the example and returns what it prints.
func output(t *testing.T, measureName string, asJSON bool) string {
	t.Helper()
	o := fakeOptions(measureName, examplePaths()...)
	o.runs, o.sizes = 5, []int{1, 131072}
	if measureName == "pingpong" {
		o.cpus = tcpbench.Placement{Client: 0, Server: 1}
	}
	var text strings.Builder
	o.json = asJSON
	if err := printAll(t, &text, o, fakeMachine()); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestJSONGolden(t *testing.T) {
	for _, m := range []string{"stream", "pingpong", "crr", "rate", "cpu"} {
		golden(t, m+".json", output(t, m, true))
	}
}

// TestJSONFields pins the names that other programs read, and their order.
func TestJSONFields(t *testing.T) {
	required := `{"measure":"stream","path":"veth","size":1,"streams":1,"unit":"Gbit/s","median":50,"min":48,"max":52,"runs":5,"control":"veth","ratio":1,`
	first, _, _ := strings.Cut(output(t, "stream", true), "\n")
	if !strings.HasPrefix(first, required) {
		t.Errorf("line %s\ndoes not begin with %s", first, required)
	}
	for _, m := range []string{"stream", "pingpong", "crr", "rate", "cpu"} {
		for line := range strings.Lines(output(t, m, true)) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"p50", "p90", "p99", "p999", "p100"} {
				if _, ok := fields[name]; ok != (m == "pingpong" || m == "crr") {
					t.Errorf("%s: has %s: %v", m, name, ok)
				}
			}
			for _, name := range []string{"congestion", "mtu", "commit", "cpu", "date", "duration_s", "noisy", "cores", "line_us", "handover_us"} {
				if _, ok := fields[name]; !ok {
					t.Errorf("%s: no %s in %s", m, name, line)
				}
			}
		}
	}
}

func TestRowsWithoutControl(t *testing.T) {
	fakes := examplePaths()
	o := fakeOptions("stream", fakes...)
	rows := makeRows(o, fakeMachine(), fakeDistance, []paths.Path{fakes[0], fakes[1]}, 64, map[int][]sample{1: {{value: 3}}})
	if len(rows) != 1 || rows[0].Path != "exn" || rows[0].Ratio != nil || rows[0].Runs != 1 {
		t.Fatalf("rows = %+v", rows)
	}
	text, err := json.Marshal(rows[0])
	if err != nil || !strings.Contains(string(text), `"ratio":null`) {
		t.Errorf("line %s, %v", text, err)
	}
	var table strings.Builder
	s := &printer{w: &table, o: o, m: fakeMachine()}
	if err := s.printRows(rows); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "  -  ") {
		t.Errorf("the table does not show that there is no ratio:\n%s", table.String())
	}
}

func TestRowRatioIsOfUnroundedMedians(t *testing.T) {
	fakes := examplePaths()
	o := fakeOptions("stream", fakes...)
	rows := makeRows(o, fakeMachine(), fakeDistance, []paths.Path{fakes[0], fakes[1]}, 1, map[int][]sample{0: {{value: 0.00004}}, 1: {{value: 0.00002}}})
	if len(rows) != 2 || *rows[1].Ratio != 0.5 {
		t.Errorf("rows = %+v", rows)
	}
}
