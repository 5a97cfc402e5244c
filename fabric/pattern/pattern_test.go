package pattern

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exnet/fabric/pattern/pfprof"
)

// elsewhere does not look at where a recording was read from.
var elsewhere = cmpopts.IgnoreFields(pfprof.Process{}, "Place")

func made(t *testing.T, name string, p Params) *Pattern {
	t.Helper()
	made, err := Make(name, p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// CG-C-128 by NPB's formula: the golden numbers of the issue.
func TestCG(t *testing.T) {
	p := made(t, "cg", Params{Ranks: 128, Class: 'C'})
	within := uint64(0) // of nodes of 8 ranks
	count := map[uint64]int{}
	for _, f := range p.Flows {
		count[f.Bytes]++
		if f.From/8 == f.To/8 {
			within += f.Bytes
		}
	}
	if len(p.Flows) != 640 || p.Bytes() != 94_852_202_496 {
		t.Errorf("%d pairs, %d bytes", len(p.Flows), p.Bytes())
	}
	if want := map[uint64]int{148_200_000: 512, 148_232_832: 128}; !cmp.Equal(count, want) {
		t.Errorf("pairs by bytes: %v, want %v", count, want)
	}
	if share := float64(within) / float64(p.Bytes()); share < 0.6249 || share > 0.6251 {
		t.Errorf("%.4f of it within nodes", share)
	}
	for _, ranks := range []int{1, 2, 4, 64, 256} {
		for _, f := range made(t, "cg", Params{Ranks: ranks, Class: 'A'}).Flows {
			if int(f.From) >= ranks || int(f.To) >= ranks || f.From < 0 || f.To < 0 {
				t.Fatalf("%d ranks: %v", ranks, f)
			}
		}
	}
}

// The transposes pair up: who sends to a rank gets from it, too.
func TestTranspose(t *testing.T) {
	for _, grid := range [][2]int{{1, 2}, {2, 2}, {8, 16}, {16, 16}} {
		for me := range grid[0] * grid[1] {
			to := transposeOf(me, grid[0], grid[1])
			if back := transposeOf(to, grid[0], grid[1]); back != me {
				t.Errorf("%v: %d to %d, and back to %d", grid, me, to, back)
			}
		}
	}
}

func TestAllreduce(t *testing.T) {
	for ranks, pairs := range map[int]int{1: 0, 2: 1, 8: 12, 16: 32, 6: 2 + 4, 7: 3 + 4} {
		p := made(t, "allreduce", Params{Ranks: ranks, Bytes: 1})
		if len(p.Flows) != 2*pairs {
			t.Errorf("%d ranks: %d flows, want %d pairs", ranks, len(p.Flows), pairs)
		}
		for _, f := range p.Flows {
			if !slices.Contains(p.Flows, Flow{f.To, f.From, 1}) || f.From == f.To {
				t.Errorf("%d ranks: %v has no way back", ranks, f)
			}
		}
	}
}

func TestMake(t *testing.T) {
	for _, tt := range []struct {
		name  string
		p     Params
		flows int
	}{
		{"alltoall", Params{Ranks: 5, Bytes: 3}, 20},
		{"ring", Params{Ranks: 5, Bytes: 3}, 5},
		{"bcast", Params{Ranks: 6, Bytes: 3}, 5},
		{"reduce", Params{Ranks: 6, Bytes: 3}, 5},
		{"halo2d", Params{Ranks: 12, Bytes: 3}, 48},
		{"halo2d", Params{Ranks: 4, Bytes: 3}, 8}, // both neighbours are the same
		{"halo3d", Params{Ranks: 27, Bytes: 3}, 162},
		{"halo3d", Params{Ranks: 7, Bytes: 3}, 14}, // a row
		{"transpose", Params{Ranks: 16, Bytes: 3}, 12},
		{"tornado", Params{Ranks: 64, Bytes: 3}, 64},
		{"tornado", Params{Ranks: 4, Bytes: 3}, 0}, // half a row less one is none
	} {
		p := made(t, tt.name, tt.p)
		if len(p.Flows) != tt.flows {
			t.Errorf("%s of %d: %d flows, want %d", tt.name, tt.p.Ranks, len(p.Flows), tt.flows)
		}
	}
	if f := made(t, "tornado", Params{Ranks: 64, Bytes: 3}).Flows; f[0].To != 3 || f[7].To != 2 || f[62].To != 57 {
		t.Errorf("tornado: %v", f)
	}
	if f := made(t, "transpose", Params{Ranks: 9, Bytes: 3}).Flows; !slices.Contains(f, Flow{5, 7, 3}) || !slices.Contains(f, Flow{7, 5, 3}) {
		t.Errorf("transpose: %v", f)
	}
	hot := uint64(0)
	for _, f := range made(t, "hotspot", Params{Ranks: 64, Bytes: 3, Seed: 1}).Flows {
		if f.From == f.To {
			t.Errorf("hotspot: %v", f)
		}
		if f.To == 0 {
			hot += f.Bytes
		}
	}
	if hot < 63*3 || hot > 63*4 {
		t.Errorf("%d bytes to the hot spot", hot)
	}
	p := made(t, "random", Params{Ranks: 100, Bytes: 10, Flows: 1000, Seed: 3})
	if p.Bytes() != 10_000 || !cmp.Equal(p, made(t, "random", Params{Ranks: 100, Bytes: 10, Flows: 1000, Seed: 3})) {
		t.Errorf("random: %d bytes", p.Bytes())
	}
	for name, p := range map[string]Params{
		"none": {Ranks: 2}, "cg": {Ranks: 3, Class: 'A'}, "random": {Ranks: 5}, "ring": {}, "alltoall": {Ranks: MaxRanks}, "transpose": {Ranks: 8}, "tornado": {Ranks: 15},
	} {
		if _, err := Make(name, p); err == nil {
			t.Errorf("%s of %+v was made", name, p)
		}
	}
	if _, err := Make("cg", Params{Ranks: 4, Class: 'X'}); err == nil {
		t.Error("cg of class X was made")
	}
}

// recording is of two ranks; the first has no duration, as early files of PFProf.
const recording = `[{"rank": 1, "n_procs": 2, "duration": 1.5, "tx_bytes": [7, 0], "rx_bytes": [5, 0]},
{"rank": 0, "n_procs": 2, "tx_bytes": [2, 5]}]`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFile(t *testing.T) {
	want := &Pattern{2, []Flow{{0, 0, 2}, {0, 1, 5}, {1, 0, 7}}}
	path := write(t, "run.json", recording)
	got, d, err := ReadFile(path)
	if err != nil || !cmp.Equal(got, want) || d != 1500*time.Millisecond {
		t.Errorf("%+v, %v, %v", got, d, err)
	}
	all, err := ReadProcesses(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, writeTo := range map[string]func(*bytes.Buffer) error{
		"a.tar.gz": func(b *bytes.Buffer) error { return WriteArchive(b, all) },
		"b.json":   func(b *bytes.Buffer) error { return pfprof.WriteJSON(b, all) },
	} {
		var b bytes.Buffer
		if err := writeTo(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadProcesses(write(t, name, b.String()))
		if err != nil || !cmp.Equal(again, all, elsewhere) {
			t.Errorf("%s: %v, %s", name, err, cmp.Diff(all, again, elsewhere))
		}
	}
	dir := filepath.Dir(write(t, "0.json", `{"rank":0,"n_procs":2,"tx_bytes":[2,5]}`))
	if err := os.WriteFile(filepath.Join(dir, "1.json"), []byte(`{"rank":1,"n_procs":2,"tx_bytes":[7,0]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ReadFile(dir); err != nil || !cmp.Equal(got, want) {
		t.Errorf("folder: %+v, %v", got, err)
	}
	got, _, err = ReadFile(write(t, "p.csv", "From,To,Bytes\n# three\n0,0,2\n0, 1, 5\n\n1,0,3\n1,0,4\n"))
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("CSV: %+v, %v", got, err)
	}
}

// Every mistake has its place.
func TestMistakes(t *testing.T) {
	for name, want := range map[string]string{
		"0,1\n0,1,2\nx,1,2\n0,1,-1\n": `p.csv:1: invalid pattern: "0,1": use from,to,bytes
p.csv:3: invalid pattern: "x" is not a rank
p.csv:4: invalid pattern: "-1" is not a number of bytes`,
		"0,1,1152921504606846976\n1,0,1\n": "p.csv: invalid pattern: more than 2^60 bytes in all",
		"# nothing\n":                      "p.csv: invalid pattern: it has no flows",
	} {
		_, _, err := ReadFile(write(t, "p.csv", name))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		"[\n{,}]":                                "r.json:2: invalid pattern",
		"{\n\"rank\": \"x\"\n}":                  "r.json:2: invalid pattern",
		`{"rank":0,"n_procs":2}`:                 "r.json:1: invalid pattern: rank 0 says n_procs is 2, but there are 1 ranks",
		"\n" + `{"rank":1,"n_procs":1}`:          "r.json:2: invalid pattern: there is no rank 1 of 1",
		`{"rank":0,"n_procs":1}`:                 "tx_bytes has 0 entries",
		`[]`:                                     "r.json:1: invalid pattern: a recording of 0 ranks",
		`{"rank":-1,"n_procs":1,"tx_bytes":[1]}`: "there is no rank -1 of 1",
		`{"rank":0,"n_procs":1,"tx_bytes":[1],"duration":1e300}`:                                          "duration 1e+300 is not",
		"\n[\n{\"rank\":0,\"n_procs\":\"x\"},\n\n{\"rank\":0,\n\"tx_bytes\":[-1]},{}]":                    "r.json:3: invalid pattern: n_procs: string is not a whole number",
		"[{\"rank\":0,\"n_procs\":\"x\"},\n\n{\"rank\":0,\n\"tx_bytes\":[-1]},{}]":                        "\nr.json:4: invalid pattern: tx_bytes: number -1 is not a whole number",
		"[{\"rank\":0,\"n_procs\":2,\"tx_bytes\":[1,2]},\n{\"rank\":0,\"n_procs\":2,\"tx_bytes\":[1,2]}]": "r.json:2: invalid pattern: rank 0 appears twice",
		`{"rank":0,"n_procs":1,"tx_bytes":[1152921504606846977]}`:                                         "r.json:1: invalid pattern: more than 2^60 bytes in all",
	} {
		_, _, err := ReadFile(write(t, "r.json", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := ReadFile(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
	if _, _, err := ReadFile(write(t, "x.tar.gz", "no")); err == nil {
		t.Error("an archive that is none was read")
	}
}
