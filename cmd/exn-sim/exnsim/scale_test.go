package exnsim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/display"
)

// The drawings of all runs have one scale: only a run with the largest load has the darkest colour,
// in a network of switches and in a fabric.
func TestScale(t *testing.T) {
	torus := `topology = "torus:4x4"
router = ["tables", "minmax"]
[[job]]
pattern = "cg"
ranks = 16
`
	for name, text := range map[string]string{"tree": cgScenario, "torus": torus} {
		dir := filepath.Join(t.TempDir(), "out")
		if status, stdout, stderr := call(t, "run", scenario(t, text), "-o", dir); status != 0 {
			t.Fatalf("%s: %d\n%s%s", name, status, stdout, stderr)
		}
		data, err := os.ReadFile(filepath.Join(dir, "runs.json"))
		if err != nil {
			t.Fatal(err)
		}
		var runs []outcome
		if err := json.Unmarshal(data, &runs); err != nil {
			t.Fatal(err)
		}
		most, darkest := uint64(0), 0
		for _, r := range runs {
			most = max(most, r.Stats.Max)
		}
		for _, r := range runs {
			svg, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("run-%03d", r.Number), "load.svg"))
			if err != nil {
				t.Fatal(err)
			}
			got, want := strings.Contains(string(svg), `stroke="`+display.Colour(1)+`"`), r.Stats.Max == most
			if got != want {
				t.Errorf("%s, run %d, load %d of %d: the darkest colour is there: %v", name, r.Number, r.Stats.Max, most, got)
			}
			if got {
				darkest++
			}
		}
		if darkest == len(runs) {
			t.Errorf("%s: all runs have the largest load: they show nothing", name)
		}
	}
}
