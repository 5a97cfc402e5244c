package topo_test

import (
	"encoding/json"
	"testing"

	"exnet/fabric/topo"
)

func TestLoad(t *testing.T) {
	tp := mesh(t, "3")
	r, l := routes(t, tp), topo.NewLoad(tp)
	r.Carry(l, 0, 2, 1, 10)
	r.Carry(l, 1, 0, 2, 50)
	r.Carry(l, 1, 1, 9, 9)
	before := l.Links()
	want := []topo.LinkLoad{
		{AB: topo.Counts{Packets: 1, Bytes: 10}, BA: topo.Counts{Packets: 2, Bytes: 50}},
		{AB: topo.Counts{Packets: 1, Bytes: 10}},
	}
	for i, w := range want {
		if before[i] != w || l.Link(i) != w {
			t.Errorf("link %d: %+v, want %+v", i, before[i], w)
		}
	}
	r.Carry(l, 2, 1, 1, 7)
	if d := l.Link(1).Since(before[1]); d != (topo.LinkLoad{BA: topo.Counts{Packets: 1, Bytes: 7}}) {
		t.Errorf("since then %+v", d)
	}
	if s := want[0].Add(want[1]); s != (topo.LinkLoad{AB: topo.Counts{Packets: 2, Bytes: 20}, BA: topo.Counts{Packets: 2, Bytes: 50}}) {
		t.Errorf("sum %+v", s)
	}
	if s := l.Total(); s != (topo.Counts{Packets: 5, Bytes: 77}) {
		t.Errorf("total %+v", s)
	}
	b, err := json.Marshal(want[0])
	if err != nil || string(b) != `{"ab":{"packets":1,"bytes":10},"ba":{"packets":2,"bytes":50}}` {
		t.Errorf("%s, %v", b, err)
	}
}
