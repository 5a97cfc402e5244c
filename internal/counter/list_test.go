package counter

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestListJSON(t *testing.T) {
	var c List
	c.Add("z.", twoCounters)
	c = append(c, Value{"napi.velo.polls", 1<<64 - 1})
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back List
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

// What is taken for counters is read back alike.
func FuzzList(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b":18446744073709551615}`, `{"a":1,"a":2}`, `{"a":-1}`, `{"a":1.0}`, `{"a"`, `{"a":}`, `{1:2}`, `[{"a":1}]`, "null", `{"\u0000":0}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c, again List
		if c.UnmarshalJSON(text) != nil {
			return
		}
		for i, e := range c { // ours are plain ASCII
			c[i].Name = strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return 'x'
				}
				return r
			}, e.Name)
		}
		enc, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalJSON(enc); err != nil || !slices.Equal(again, c) {
			t.Fatalf("%s: %v, %v", enc, again, err)
		}
	})
}
