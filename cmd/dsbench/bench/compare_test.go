package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
)

// group makes a row whose runs lie around a median.
func group(measure, path string, median, spread float64) result.Row {
	v := []float64{median, median * (1 - spread/2), median * (1 + spread/2), median, median}
	return result.Row{
		Measure: measure, Path: path, Size: 64, Streams: 1, Unit: map[bool]string{true: "us", false: "x"}[measure == "pingpong"], Median: median, Min: v[1], Max: v[2], Control: "lo",
		Values: v, Spread: spread, Noisy: spread > result.NoiseBound, Distance: coredist.Distance{Cores: coredist.Near},
	}
}

func TestVerdicts(t *testing.T) {
	far := group("stream", "exn", 20, 0.02)
	far.Cores = coredist.Far
	few := group("stream", "exn", 20, 0)
	few.Values = few.Values[:2]
	for _, tt := range []struct {
		name   string
		lo, x  result.Row
		lo2, y result.Row
		want   string
	}{
		{"nothing", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), group("stream", "lo", 10.1, 0.02), group("stream", "exn", 10.2, 0.02), verdictSame},
		{"better", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), group("stream", "lo", 10, 0.02), group("stream", "exn", 20, 0.02), verdictBetter},
		{"worse", group("stream", "lo", 10, 0.02), group("stream", "exn", 20, 0.02), group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), verdictWorse},
		{"latency", group("pingpong", "lo", 10, 0.02), group("pingpong", "exn", 10, 0.02), group("pingpong", "lo", 10, 0.02), group("pingpong", "exn", 20, 0.02), verdictWorse},
		{"the machine", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), group("stream", "lo", 20, 0.02), group("stream", "exn", 20, 0.02), verdictMachine},
		{"noisy", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.8), group("stream", "lo", 10, 0.02), group("stream", "exn", 14, 0.8), verdictNoisy},
		{"the cores", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), group("stream", "lo", 10, 0.02), far, verdictCores},
		{"few", group("stream", "lo", 10, 0.02), group("stream", "exn", 10, 0.02), group("stream", "lo", 10, 0.02), few, verdictFew},
	} {
		list, onlyA, onlyB := compareRows([]result.Row{tt.lo, tt.x}, []result.Row{tt.lo2, tt.y})
		if len(list) != 2 || onlyA+onlyB != 0 || list[1].Verdict != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, list, tt.want)
		}
	}
}

// A figure with a rest before each message is not one without.
func TestCompareRest(t *testing.T) {
	a, b := group("pingpong", "lo", 10, 0.02), group("pingpong", "lo", 30, 0.02)
	b.Rest = 0.02
	if list, onlyA, onlyB := compareRows([]result.Row{a}, []result.Row{b}); len(list) != 0 || onlyA != 1 || onlyB != 1 {
		t.Errorf("%+v, %d and %d left over", list, onlyA, onlyB)
	}
}

func TestCompareFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, rows ...result.Row) string {
		var text strings.Builder
		if err := result.WriteLines(&text, rows); err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	lo := group("stream", "lo", 10, 0.02)
	a := write("a", lo, group("stream", "exn", 10, 0.02), group("stream", "veth", 1, 0.02))
	b := write("b", lo, group("stream", "exn", 25, 0.02), group("rate", "veth", 1, 0.02))
	other := write("other", group("crr", "x", 1, 0))
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words          string
		status         int
		stdout, stderr string
	}{
		{"compare " + a + " " + a, 0, "3 figures compared: nothing changed beyond the noise.\n", ""},
		{"compare " + a + " " + b, 0, "Only A has 1 more, only B 1.\n", ""},
		{"compare " + a + " " + b, 0, "exn              64        1       10.0       25.0     2.50  better\n", ""},
		{"compare --all " + a + " " + b, 0, "stream    lo ", ""},
		{"compare --fail " + a + " " + b, 0, "better\n", ""},
		{"compare --fail " + b + " " + a, 1, "worse\n", "dsbench compare: 1 figure worse beyond the noise\n"},
		{"compare " + a, 2, "", "dsbench compare: name two files, not 1 (see dsbench compare -h)\n"},
		{"compare " + a + " " + bad, 1, "", "dsbench compare: " + bad + " is neither a report's JSON nor lines of --json\n"},
		{"compare " + a + " " + filepath.Join(dir, "nobody"), 1, "", "no such file"},
		{"compare " + a + " " + other, 1, "", "dsbench compare: the two files have no figure in common"},
	} {
		status, stdout, stderr := runProgram(t.Context(), tt.words)
		if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || (stderr == "") != (tt.stderr == "") {
			t.Errorf("dsbench %s: status %d\n%s%s", tt.words, status, stdout, stderr)
		}
		fits(t, stdout)
	}
	_, stdout, _ := runProgram(t.Context(), "compare -h")
	fits(t, stdout)
}
