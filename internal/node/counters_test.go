package node

import (
	"encoding/json"
	"slices"
	"testing"

	"exnet/napi"
)

func TestCountersJSON(t *testing.T) {
	var c Counters
	c.Add("z.", twoCounters)
	c.AddNAPI("napi.", napi.Stats{Deferred: 3, Sources: []napi.SourceStats{{Name: "velo", Polls: 1<<64 - 1}}})
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Counters
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back, c) {
		t.Errorf("%v\n got %v\nwant %v", err, back, c) // in order, and every bit
	}
	for _, bad := range []string{`[]`, `{"a":-1}`, `{"a":"b"}`, `{"a":{}}`, `3`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s became %v", bad, back)
		}
	}
}

func twoCounters(yield func(string, uint64) bool) { _ = yield("b", 1) && yield("a", 2) }
