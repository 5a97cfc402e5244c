package exntun

import (
	"encoding/json"
	"strings"
	"testing"

	"exnet/exteth"
	"exnet/internal/counter"
)

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
