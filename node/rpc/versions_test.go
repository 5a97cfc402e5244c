package rpc

import "testing"

func TestCommon(t *testing.T) {
	for _, tt := range []struct {
		a, b Versions
		want uint8
		ok   bool
	}{
		{Versions{2, 3}, Versions{2, 3}, 3, true},
		{Versions{2, 3}, Said(2, 0), 2, true},
		{Versions{2, 3}, Said(2, 1<<40), 2, true},
		{Versions{2, 3}, Said(3, 9), 3, true},
		{Versions{2, 3}, Said(1, 255), 3, true},
		{Versions{2, 3}, Said(4, 9), 0, false},
		{Versions{2, 3}, Said(1, 1), 0, false},
	} {
		for _, v := range [][2]Versions{{tt.a, tt.b}, {tt.b, tt.a}} {
			got, ok := v[0].Common(v[1])
			if ok != tt.ok || ok && (got != tt.want || !v[0].Has(got) || !v[1].Has(got)) {
				t.Errorf("%v and %v: %d, %v", v[0], v[1], got, ok)
			}
		}
	}
}

func TestVersionsString(t *testing.T) {
	if got := (Versions{2, 2}).String() + ", " + (Versions{2, 3}).String(); got != "2, 2 to 3" {
		t.Error(got)
	}
}
