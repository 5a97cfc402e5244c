package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"
	"exnet/exteth"
	"exnet/internal/longtest"
	"exnet/napi"
	"exnet/node/daemon"
)

// runs are five runs that lie close to a median.
func runs(median float64) []float64 {
	return []float64{median, median * 0.995, median * 1.005, median, median}
}

func TestChooseEager(t *testing.T) {
	rows := func(velo ...float64) (list []result.Row) {
		for i, size := range tuneEagers {
			list = append(list, result.Row{Path: "RMA transfer", Size: size, Values: runs(10)})
			v := 20.0
			if i < len(velo) {
				v = velo[i]
			}
			list = append(list, result.Row{Path: "VELO messages", Size: size, Values: runs(v)})
		}
		return list
	}
	noisy := rows(8, 9)
	for i := range noisy {
		noisy[i].Values = []float64{1, 10, 100, 20, 5}
	}
	for _, tt := range []struct {
		rows []result.Row
		want int
	}{
		{rows(8, 9, 10, 10.4), exteth.DefaultEagerThreshold}, // which lies within what makes no difference
		{rows(8, 8, 8, 8, 8, 10), tuneEagers[4] + frameOverhead},
		{slices.Concat(rows(8)[:2], noisy[2:]), exteth.DefaultEagerThreshold}, // the noise hides the others
		{rows(8, 9, 12, 8), tuneEagers[1] + frameOverhead},                    // the first that is slower ends it
		{rows(), minEager},
		{nil, exteth.DefaultEagerThreshold},
		{noisy, exteth.DefaultEagerThreshold},
	} {
		if got, why := chooseEager(tt.rows); got != tt.want || why == "" {
			t.Errorf("%d (%s), want %d", got, why, tt.want)
		}
	}
}

func TestChooseCoalesce(t *testing.T) {
	make2 := func(latency, stream, cpu []float64) (a, b []result.Row) {
		for i := range latency {
			a = append(a, result.Row{Median: latency[i]})
			b = append(b, result.Row{Median: stream[i], CPUPerGB: &cpu[i]})
		}
		return a, b
	}
	for _, tt := range []struct {
		latency, stream, cpu []float64
		want                 int
	}{
		{[]float64{10, 10, 10, 10, 10}, []float64{50, 50, 50, 50, 50}, []float64{1, 0.99, 0.98, 0.97, 0.96}, 0}, // no difference: off
		{[]float64{10, 20, 50, 100, 10.5}, []float64{50, 50, 50, 50, 49}, []float64{1, .5, .4, .3, .7}, 4},
		{[]float64{10, 10.5, 50, 100, 10.5}, []float64{50, 50, 50, 50, 20}, []float64{1, .5, .4, .3, .1}, 1},
		{[]float64{10, 20, 20, 20, 20}, []float64{10, 50, 50, 50, 50}, []float64{1, .5, .4, .3, .1}, 0}, // nothing is good at both
	} {
		latency, stream := make2(tt.latency, tt.stream, tt.cpu)
		if got, why := chooseCoalesce(latency, stream); got != tuneCoalesce[tt.want] || why == "" {
			t.Errorf("%+v: %+v (%s)", tt, got, why)
		}
	}
	if got, _ := chooseCoalesce(nil, nil); got != (napi.Coalesce{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestChooseFirst(t *testing.T) {
	rows := func(medians ...float64) (list []result.Row) {
		for _, m := range medians {
			list = append(list, result.Row{Median: m, Values: runs(m)})
		}
		return list
	}
	for _, tt := range []struct {
		name  string
		rows  []result.Row
		lower bool
		slack float64
		usual int
		want  int
	}{
		{"largest", rows(7, 9.6, 10, 9.9), false, 0.05, 0, 1},
		{"smallest", rows(40, 0.32, 0.3), true, 0.1, 0, 1},
		{"the default is as good", rows(7, 9.6, 10, 9.9), false, 0.05, 3, 3},
		{"the default is the best", rows(0.3, 40, 40), true, 0.1, 0, 0},
	} {
		if i, why := chooseFirst(tt.rows, tt.lower, tt.slack, tt.usual); i != tt.want || why == "" {
			t.Errorf("%s: %d (%s), want %d", tt.name, i, why, tt.want)
		}
	}
	noisy := rows(7, 9.6, 10)
	noisy[2].Values = []float64{10, 2, 30, 7, 11}
	noisy[1].Values = noisy[2].Values
	if i, _ := chooseFirst(noisy, false, 0.05, 0); i != 0 {
		t.Errorf("noise: %d is better than the default", i)
	}
}

// The defaults are where choose looks for them.
func TestUsual(t *testing.T) {
	if tuneChunks[usualChunk] != 64<<10 || tuneSpins[usualSpin] != 50*time.Microsecond {
		t.Errorf("%d, %v: see directsockets.Config", tuneChunks[usualChunk], tuneSpins[usualSpin])
	}
}

// TestTuneConfig: exn-tun takes it, and finds what was chosen.
func TestTuneConfig(t *testing.T) {
	found := &report.Tuned{
		Machine: fakeMachine(), Distance: fakeDistance, Runs: 5, Eager: 466,
		Coalesce: napi.Coalesce{Frames: 16, Delay: 50 * time.Microsecond}, Chunk: 32 << 10, Spin: 20 * time.Microsecond,
		Skipped: []string{"chunk: <none>"},
		Steps:   []report.TunedStep{{Name: "coalescing", Why: "so", Rows: map[string][]result.Row{"pingpong": {{Path: "off", Size: 64, Median: 1}}}}},
	}
	name := filepath.Join(t.TempDir(), "t.toml")
	if err := os.WriteFile(name, []byte(found.Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := daemon.ReadFile(name)
	if err != nil || c.EagerThreshold != found.Eager || c.Receive.Coalesce != found.Coalesce {
		t.Errorf("%+v, %v, of\n%s", c, err, found.Config())
	}
	if !strings.Contains(found.Config(), "directsockets.Config{Chunk: 32 << 10, Spin: 20 * time.Microsecond}") {
		t.Error(found.Config())
	}
	page, err := found.Page()
	if err != nil || !strings.Contains(string(page), "Coalescing: 16/50") || strings.Contains(string(page), "<none>") {
		t.Errorf("%v\n%s", err, page)
	}
}

func TestTuneUsage(t *testing.T) {
	there := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words  string
		status int
		stderr string
	}{
		{"tune -o a.json", 2, `dsbench tune: -o a.json: give it a name that ends in .toml (see dsbench tune -h)` + "\n"},
		{"tune --runs 0", 2, "dsbench tune: --runs: use a number from 1 to 1000 (see dsbench tune -h)\n"},
		{"tune b.toml", 2, `unexpected argument "b.toml"`},
		{"tune --nonsense", 2, "-nonsense"},
		{"tune -o " + there, 1, "dsbench tune: " + there + " exists: choose another name, or --force\n"},
	} {
		status, stdout, stderr := runProgram(t.Context(), tt.words)
		if status != tt.status || stdout != "" || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("dsbench %s: status %d, stdout %q, stderr %q", tt.words, status, stdout, stderr)
		}
	}
	status, stdout, _ := runProgram(t.Context(), "tune -h")
	if status != 0 {
		t.Errorf("%d", status)
	}
	fits(t, stdout)
}

// TestRootTune measures as little as can be.
func TestRootTune(t *testing.T) {
	longtest.Skip(t)
	benchtest.RequireExn(t)
	name := filepath.Join(t.TempDir(), "t.toml")
	cmd, stdout, stderr := program(t, "tune --runs 1 --duration 10ms -o "+name)
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 || !strings.Contains(stdout.String(), "eager_threshold = ") {
		t.Fatalf("%v, %s%s", err, stdout, stderr)
	}
	if _, err := daemon.ReadFile(name); err != nil {
		t.Error(err)
	}
}
