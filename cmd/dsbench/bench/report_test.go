package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"
)

// fakeReport is a report of all parts, whose figures follow a rule.
func fakeReport() *report.Data {
	ro := reportOptions{runs: 5, duration: 250 * time.Millisecond, warmup: 80 * time.Millisecond, congestion: "cubic"}
	d := &report.Data{
		Version: report.Version, Machine: fakeMachine(), Distance: fakeDistance, Took: 601, Runs: ro.runs,
		Duration: ro.duration.Seconds(), Warmup: ro.warmup.Seconds(), TCP: ro.congestion, Busy: 0.5,
		Partial: "interrupted after 7 of 9 measurements", Skipped: []report.Skipped{{Path: "netstack", Why: "no <route> to & fro"}},
	}
	for _, p := range planParts(ro, func(name string) bool { return name != "netstack" }) {
		part := report.Part{ID: p.id}
		for _, size := range p.o.sizes {
			for i, k := range p.o.paths {
				median := float64(10+len(k.Name)*3+i) * (1 + float64(size)/65536)
				r := result.Row{
					Measure: p.o.measure.name, Path: k.Name, Size: size, Streams: p.o.streams, Unit: p.o.measure.unit,
					Median: median, Min: median * 0.95, Max: median * 1.04, Runs: 5, Control: p.o.control, Ratio: new(median / 10),
					Values: []float64{median, median * 0.95, median * 1.04, median, median}, Spread: 0.09, MTU: 65535, Distance: fakeDistance, Duration: p.o.duration.Seconds(), Congestion: ro.congestion,
				}
				if p.o.measure.latency {
					r.P50, r.P90, r.P99, r.P999, r.P100 = new(median), new(median*1.1), new(median*2), new(median*5), new(median*100)
					if p.o.rest > 0 {
						r.P25, r.P75, r.Rest = new(median*0.9), new(median*1.3), p.o.rest.Seconds()
					}
				} else {
					r.CPUPerGB = new(0.25 * float64(1+i))
				}
				if k.Name == "veth" && size == 64 {
					r.Noisy, r.Spread = true, 0.6
				}
				part.Rows = append(part.Rows, r)
			}
		}
		d.Parts = append(d.Parts, part)
	}
	d.AddMPI(fakeMPI())
	d.Parts = append(d.Parts, report.Part{ID: report.PartPrograms, Note: "wrk is left out: not installed", Rows: []result.Row{
		{Measure: "iperf3", Path: "tcp", Unit: "Gbit/s", Median: 50}, {Measure: "iperf3", Path: "direct", Unit: "Gbit/s", Median: 200},
		{Measure: "sockperf", Path: "tcp", Unit: "us", Median: 10}, {Measure: "sockperf", Path: "direct", Unit: "us", Median: 0.5},
	}})
	for i := range d.Parts[len(d.Parts)-1].Rows {
		d.Parts[len(d.Parts)-1].Rows[i].Control = "tcp"
	}
	d.Parts[1].Note = `path ds: "cable" cut`
	return d
}

// fakeMPI are rows of dsbench mpi.
func fakeMPI() (rows []result.Row) {
	for _, measure := range []struct{ name, unit string }{
		{"openmpi latency", "us"}, {"mpich latency", "us"}, {"openmpi bandwidth", "Gbit/s"}, {"openmpi rate", "M/s"},
	} {
		for _, size := range []int{8, 512 << 10} {
			for i, path := range []string{"lo", "veth", "exn", "ds", "ds-exn"} {
				v := float64(5+i) * float64(8+size) / 8
				rows = append(rows, result.Row{Measure: measure.name, Path: path, Size: size, Streams: 1, Unit: measure.unit,
					Median: v, Min: v, Max: v, Runs: 1, Values: []float64{v}, Control: "lo", Duration: 0.1})
			}
		}
	}
	return rows
}

// TestReportWithoutMPI: figures 5.30 to 5.32 say that MPI was not measured.
func TestReportWithoutMPI(t *testing.T) {
	d := fakeReport()
	d.Parts = slices.DeleteFunc(d.Parts, func(p report.Part) bool {
		return strings.HasPrefix(p.ID, "openmpi") || strings.HasPrefix(p.ID, "mpich")
	})
	page, err := report.Render(d)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"In the thesis this figure is MPI over EXN": 3, "Open MPI<": 0} {
		if n := strings.Count(string(page), text); n != want {
			t.Errorf("%q: %d times, want %d", text, n, want)
		}
	}
}

// structure lists what a page consists of.
func structure(page string) string {
	var b strings.Builder
	body := page[strings.Index(page, "<header>"):strings.Index(page, `<section id="data">`)]
	body = regexp.MustCompile(`(?s)<svg.*?</svg>`).ReplaceAllStringFunc(body, func(svg string) string {
		return fmt.Sprintf("[drawing: %d curves, %d marks, %d reference lines]",
			strings.Count(svg, "<path d=") /* curves and some marks */, strings.Count(svg, "<title>"), strings.Count(svg, `class="ref"`))
	})
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "\n")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(html.UnescapeString(line)); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// The label beside an axis is no longer than the axis, in the larger letters of a narrow screen,
// too.
func TestReportLabels(t *testing.T) {
	page, err := report.Render(fakeReport())
	if err != nil {
		t.Fatal(err)
	}
	labels := regexp.MustCompile(`rotate\(-90\)"[^>]*>([^<]*)<`).FindAllStringSubmatch(string(page), -1)
	if len(labels) < 10 {
		t.Errorf("%d labels", len(labels))
	}
	for _, l := range labels {
		const letter, axis = 6.9, 244 // of 13.5 units; the plot and what is above it
		if n := letter * float64(len([]rune(l[1]))); n > axis {
			t.Errorf("%q takes %.0f units, of %d", l[1], n, axis)
		}
	}
}

func TestReportGolden(t *testing.T) {
	page, err := report.Render(fakeReport())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", structure(string(page)))
}

// TestReportStandsAlone: nothing is loaded from elsewhere, nothing is broken, and
// the data inside are those of the report.
func TestReportStandsAlone(t *testing.T) {
	d := fakeReport()
	page, err := report.Render(d)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, bad := range []string{"src=", "<link", "@import", "url(", "NaN", "Inf", "%!", "<nil>", "ZgotmplZ", "<route>"} {
		if strings.Contains(strings.ReplaceAll(text, "Info", ""), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if n := strings.Count(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "http"); n > 0 {
		t.Errorf("%d addresses", n)
	}
	if open, end := strings.Count(text, "<svg"), strings.Count(text, "</svg>"); open != end || open < 10 {
		t.Errorf("%d drawings begin, %d end", open, end)
	}
	_, inside, _ := strings.Cut(text, `<script type="application/json" id="dsbench">`)
	inside, _, _ = strings.Cut(inside, "</script>")
	got, err := report.Decode([]byte(inside))
	if err != nil {
		t.Fatalf("%v in %.200s", err, inside)
	}
	a, _ := json.Marshal(d)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) {
		t.Error("the data inside differ")
	}
}

// TestReportOfLittle: a page is drawn of whatever was measured.
func TestReportOfLittle(t *testing.T) {
	full := fakeReport()
	for _, part := range full.Parts {
		for n := range part.Rows {
			d := *full
			d.Parts = []report.Part{{ID: part.ID, Rows: part.Rows[n : n+1]}}
			if _, err := report.Render(&d); err != nil {
				t.Errorf("%s, row %d: %v", part.ID, n, err)
			}
		}
	}
	if _, err := report.Render(&report.Data{Version: report.Version}); err != nil {
		t.Error(err)
	}
}

func TestReportUsage(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.html")
	other := filepath.Join(dir, "other.json")
	for name, text := range map[string]string{there: "mine", other: "{}"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		words  string
		status int
		stderr string
	}{
		{"report --runs 0", 2, "dsbench report: --runs: use a number from 1 to 1000 (see dsbench report -h)\n"},
		{"report --duration 0s", 2, "dsbench report: --duration: use a time from 1ms to 1h, such as 250ms or 2s (see dsbench report -h)\n"},
		{"report --paths foo", 2, `dsbench report: --paths: unknown path "foo"`},
		{"report -o a.txt", 2, `dsbench report: -o a.txt: give it a name that ends in .html (see dsbench report -h)` + "\n"},
		{"report b.html", 2, `dsbench report: unexpected argument "b.html" (see dsbench report -h)` + "\n"},
		{"report -o " + there, 1, "dsbench report: " + there + " exists: choose another name, or --force\n"},
		{"report -o " + filepath.Join(dir, "no", "a.html"), 1, "cannot be written there"},
		{"report --from " + other + " -o " + filepath.Join(dir, "a.html"), 1, "dsbench report: --from: " + other + ": no report of dsbench report\n"},
		{"report --from " + filepath.Join(dir, "nobody.json") + " -o " + filepath.Join(dir, "a.html"), 1, "no such file"},
	} {
		status, stdout, stderr := runProgram(t.Context(), tt.words)
		if status != tt.status || stdout != "" || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("dsbench %s: status %d, stdout %q, stderr %q", tt.words, status, stdout, stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	status, stdout, _ := runProgram(t.Context(), "report -h")
	if status != 0 || !strings.Contains(stdout, "--quick") {
		t.Errorf("help: %d, %q", status, stdout)
	}
	fits(t, stdout)
}

// rowsIn counts the rows of a report's JSON.
func rowsIn(path string) (n int, err error) {
	d, err := report.Read(path)
	if err != nil {
		return 0, err
	}
	for _, p := range d.Parts {
		n += len(p.Rows)
	}
	return n, nil
}

// TestReportFrom draws a page from the data of another.
func TestReportFrom(t *testing.T) {
	dir := t.TempDir()
	c := reportCommand{html: filepath.Join(dir, "a.html"), data: filepath.Join(dir, "a.json")}
	if err := c.writeReport(fakeReport()); err != nil {
		t.Fatal(err)
	}
	b := filepath.Join(dir, "b.html")
	status, stdout, stderr := runProgram(t.Context(), "report --from "+c.data+" -o "+b)
	if status != 0 || stderr != "" || stdout != b+" and "+filepath.Join(dir, "b.json")+"\n" {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	for _, kind := range []string{"html", "json"} {
		one, err1 := os.ReadFile(filepath.Join(dir, "a."+kind))
		two, err2 := os.ReadFile(filepath.Join(dir, "b."+kind))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s: the copies differ (%v, %v)", kind, err1, err2)
		}
	}
	if n, err := rowsIn(c.data); err != nil || n < 100 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// TestRunReport measures as little as can be, and is then interrupted.
func TestRunReport(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.html")
	cmd, stdout, stderr := program(t, "report --quick --paths lo,ds --runs 1 --duration 10ms --congestion "+benchtest.Congestion(t)+" -o "+name)
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, %s", err, stderr)
	}
	if want := name + " and " + filepath.Join(dir, "r.json") + "\n"; stdout.String() != want {
		t.Errorf("stdout %q, want %q", stdout, want)
	}
	if n, err := rowsIn(filepath.Join(dir, "r.json")); err != nil || n < 8 {
		t.Fatalf("%d rows, %v", n, err)
	}

	name = filepath.Join(dir, "i.html")
	cmd, _, stderr = program(t, "report --paths lo --runs 100 --duration 100ms --congestion "+benchtest.Congestion(t)+" -o "+name)
	measurements := benchtest.CountMeasurements(t, strconv.Itoa(cmd.Process.Pid))
	benchtest.Eventually(t, "the third measurement", func() bool { return measurements() > 2 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.HasPrefix(stderr.String(), "dsbench report: interrupted after ") {
		t.Errorf("%v, %s", err, stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "i.json"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := report.Decode(text)
	if err != nil || !strings.HasPrefix(d.Partial, "interrupted after ") || len(d.Parts) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
