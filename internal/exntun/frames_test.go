package exntun

import (
	"encoding/json"
	"strings"
	"testing"

	"exnet/exteth"
	"exnet/internal/counter"
)

func TestFramesLost(t *testing.T) {
	all := frames{Eager: way{10, 10}, Rendezvous: way{5, 5}, Broadcast: way{2, 6}}
	if lost := all.lost(4); lost != "" {
		t.Errorf("all there, but %q", lost)
	}
	for _, c := range []struct {
		spoil func(*frames)
		want  string
	}{
		{func(f *frames) { f.Eager.Received-- }, "10 eager frames sent, 9 received"},
		{func(f *frames) { f.Rendezvous.Sent++ }, "6 rendezvous frames sent, 5 received"},
		{func(f *frames) { f.Broadcast.Received-- }, "2 broadcast frames sent to 3 nodes each, 5 received"},
	} {
		f := all
		c.spoil(&f)
		if lost := f.lost(4); lost != c.want {
			t.Errorf("%+v: %q, want %q", f, lost, c.want)
		}
	}
}

func TestFramesAddAndMinus(t *testing.T) {
	var f frames
	f.add(exteth.Stats{TxEager: 1, RxEager: 2, TxRendezvous: 3, RxRendezvous: 4, TxGroup: 5, RxGroup: 6})
	early := f
	f.add(exteth.Stats{TxEager: 10, RxEager: 20, TxRendezvous: 30, RxRendezvous: 40, TxGroup: 50, RxGroup: 60})
	want := frames{way{10, 20}, way{30, 40}, way{50, 60}}
	if got := f.minus(early); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := want.String(); got != "10 frames eagerly, 30 by rendezvous, 50 by broadcast" {
		t.Error(got)
	}
}

func TestCounters(t *testing.T) {
	var c counter.List
	c.Add("exteth.", exteth.Stats{TxEager: 7}.All())
	c = append(c, counter.Value{Name: "napi.inline_runs", Value: 1}, counter.Value{Name: "napi.velo.polls", Value: 2})
	if c[0] != (counter.Value{Name: "exteth.tx_eager", Value: 7}) {
		t.Errorf("first counter %v", c[0])
	}
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]uint64
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(c) || got["exteth.tx_eager"] != 7 || got["napi.inline_runs"] != 1 || got["napi.velo.polls"] != 2 {
		t.Errorf("JSON %s", line)
	}
	if text, err := json.Marshal(counter.List(nil)); err != nil || string(text) != "{}" {
		t.Errorf("none: %s, %v", text, err)
	}

	var out strings.Builder
	printCounters(&out, []nodeInfo{{Node: 1, Counters: c}}, counter.List{{Name: "txloop.packets", Value: 9}, {Name: "txloop.bad", Value: 0}})
	text := out.String()
	fits(t, text)
	for _, want := range []string{"node 1    exteth.tx_eager", "all       txloop.packets", " more are 0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "txloop.bad") {
		t.Errorf("a counter that is 0 is listed:\n%s", text)
	}
}
