package rules

import (
	"cmp"
	"net/netip"
	"testing"
)

// Which connections go through the fabric, and which rules cannot be understood.
func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		rule, again string
		in, out     []string
	}{
		{"fabric", "", []string{"10.2.0.1:80", "[fd00::1]:65535"}, nil},
		{"fabric:80", "", []string{"10.2.0.1:80", "[fd00::1]:80"}, []string{"10.2.0.1:81"}},
		{"fabric:8000-8002", "", []string{"10.2.0.1:8000", "10.2.0.1:8002"}, []string{"10.2.0.1:7999", "10.2.0.1:8003"}},
		{"fabric:10.2.0.0/24", "", []string{"10.2.0.255:1"}, []string{"10.2.1.0:1", "[fd00::1]:80"}},
		{"fabric:10.2.0.7", "fabric:10.2.0.7/32", []string{"10.2.0.7:1"}, []string{"10.2.0.8:1"}},
		{"fabric:fd00::/64,80", "", []string{"[fd00::5]:80"}, []string{"[fd00::5]:81", "[fd01::5]:80"}},
		{"fabric:*,80-81", "fabric:80-81", []string{"10.2.0.1:81"}, []string{"10.2.0.1:82"}},
	} {
		var p Paths
		if err := p.Set(tt.rule); err != nil {
			t.Error(err)
			continue
		}
		if want := cmp.Or(tt.again, tt.rule); p.String() != want {
			t.Errorf("%s is written as %s", tt.rule, p)
		}
		for _, a := range tt.in {
			if !p.Cover(netip.MustParseAddrPort(a)) {
				t.Errorf("%s leaves out %s", tt.rule, a)
			}
		}
		for _, a := range tt.out {
			if p.Cover(netip.MustParseAddrPort(a)) {
				t.Errorf("%s has %s", tt.rule, a)
			}
		}
	}
	for _, bad := range []string{"", "shm", "fabric:", "fabric:,", "fabric:80-70", "fabric:70000", "fabric:host", "fabric:10.2.0.1/24", "fabric:10.2.0.1,x", "fabric:0", "fabric:10.2.0.1,0", "fabrics"} {
		var p Paths
		if err := p.Set(bad); err == nil {
			t.Errorf("%q: %v, %v", bad, p, err)
		}
	}
}
