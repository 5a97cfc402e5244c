package report

import (
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
)

func TestCores(t *testing.T) {
	near := coredist.Distance{Cores: coredist.Near, Line: 0.06, HandOver: 1.9}
	d := &Data{Distance: near, Parts: []Part{{Rows: []result.Row{{Distance: near}, {Distance: near}}}}}
	if got := d.distanceText(); got != "CPUs "+microText(near.String()) {
		t.Errorf("%q", got)
	}
	d.Parts[0].Rows[0].Distance = coredist.Distance{Cores: coredist.Far}
	if got := d.distanceText(); !strings.HasSuffix(got, "; near at times and far at others") {
		t.Errorf("%q", got)
	}
}

// A file that is no report is refused.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"dsbench_report":1,"machine":{"cpu":"x","date":"2026-11-20T00:00:00Z"},"parts":[{"id":"a","rows":[{"measure":"stream","path":"lo"}]}]}`,
		"", "{}", `{"version":99}`, `{"dsbench_report":99}`, "null", `{"error":"x"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Decode([]byte(text))
		if err != nil {
			return
		}
		if d.Version != Version {
			t.Errorf("version %d", d.Version)
		}
		d.startTime()
	})
}
