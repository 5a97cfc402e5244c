package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRedisRate(t *testing.T) {
	const good = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"121951.22\",\"0.211\"\n"
	if v, err := redisRate(good); err != nil || v != 121951.22 {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "Could not connect", "\"GET\"\n", "\"GET\",\"x\"\n"} {
		if v, err := redisRate(bad); err == nil {
			t.Errorf("%q: %v", bad, v)
		}
	}
}

// TestAllDirect: a run of which some connections were on TCP is not called direct.
func TestAllDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	const direct, tcp = `{"path":"direct","choice":"shared memory"}` + "\n", `{"path":"tcp","choice":"no broker"}` + "\n"
	for _, c := range []struct{ text, want string }{
		{direct + direct + tcp, ""},
		{direct + tcp, "1 of 2 connections were direct (no broker)"},
		{"", "exn-run tells of no connection"},
		{"{", "unexpected end of JSON input"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := allDirect(path, 2)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if err := allDirect(filepath.Join(t.TempDir(), "none"), 2); err == nil {
		t.Error("no report, and no error")
	}
}
