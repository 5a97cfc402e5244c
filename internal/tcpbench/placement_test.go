package tcpbench

import (
	"slices"
	"testing"
)

func TestPlacement(t *testing.T) {
	cpus := AllowedCPUs()
	if len(cpus) == 0 || !slices.IsSorted(cpus) {
		t.Fatalf("CPUs %v", cpus)
	}
	want := Anywhere()
	if len(cpus) > 1 {
		want = Placement{Client: cpus[0], Server: cpus[len(cpus)-1]}
	}
	if got := Apart(); got != want {
		t.Errorf("of %v the ends are on %v, want %v", cpus, got, want)
	}
	for p, want := range map[Placement]string{Anywhere(): "any", {0, 1}: "0,1", {AnyCPU, 2}: "-1,2"} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}
