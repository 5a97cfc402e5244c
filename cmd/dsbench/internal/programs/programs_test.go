package programs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/clitest"

	"github.com/spf13/pflag"
)

func TestParseProgramOutput(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		said       output
		want       sample
		fails      bool
	}{
		{"iperf3", `{"end":{"sum_sent":{"bits_per_second":1},"sum_received":{"bits_per_second":63500000000.5}}}`, iperfSays,
			sample{value: 63.5000000005}, false},
		{"iperf3 that fails", `{"error":"unable to connect"}`, iperfSays, sample{}, true},
		{"sockperf", "sockperf: Summary: Latency is 5.321 usec\nsockperf: ---> percentile 99.900 =    9.000\n" +
			"sockperf: ---> percentile 99.000 =    7.250\nsockperf: ---> percentile 50.000 =    5.125\n", sockSays,
			sample{value: 5.125, p50: 5.125, p99: 7.25}, false},
		{"redis-benchmark", "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n" +
			"\"GET\",\"121951.22\",\"0.211\",\"0.080\",\"0.207\",\"0.255\",\"0.343\",\"0.671\"\n", redisSays, sample{value: 121951.22, p50: 207, p99: 343}, false},
		{"wrk", "  Latency Distribution\n     50%  425.00us\n     75%  800.00us\n     90%    1.02ms\n     99%    2.50ms\n" +
			"  60000 requests in 1.00s, 80.00MB read\nRequests/sec:  59812.12\nTransfer/sec:     79.00MB\n", wrkSays,
			sample{value: 59812.12, p50: 425, p99: 2500}, false},
		{"wrk with errors", "Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec:  1.0\n", wrkSays, sample{}, true},
		{"hey", "  Requests/sec:\t18004.0769\n  Latency distribution:\n  50%% in 0.0020 secs\n  99%% in 0.0150 secs\n  [200]\t54013 responses\n", heySays,
			sample{value: 18004.0769, p50: 2000, p99: 15000}, false},
		{"goecho", "21021 requests/s, p50 1164.5 us, p99 38289.3 us, CPU 14.06 us a request\n", echoSays, sample{value: 21021, p50: 1164.5, p99: 38289.3}, false},
		{"dnsperf", "  Queries lost:         0 (0.00%)\n\n  Response codes:       NOERROR 248842 (75.00%), NXDOMAIN 82947 (25.00%)\n  Queries per second:   331596.342525\n",
			dnsSays, sample{value: 331596.342525}, false},
		{"dnsperf with losses", "  Queries lost:         3 (0.00%)\n  Response codes:       NOERROR 1 (100.00%)\n  Queries per second:   12.5\n", dnsSays, sample{}, true},
		{"dnsperf with errors", "  Queries lost:         0 (0.00%)\n  Response codes:       NOERROR 1 (50.00%), SERVFAIL 1 (50.00%)\n  Queries per second:   12.5\n",
			dnsSays, sample{}, true},
		{"hey with errors", "  Requests/sec:\t1.5\nError distribution:\n  [3]\tEOF\n", heySays, sample{}, true},
		{"hey with another status", "  Requests/sec:\t1.5\n  [503]\t54013 responses\n", heySays, sample{}, true},
		{"a loop", "1234567\n", loopSays, sample{value: 1234.567}, false},
		{"pgbench", "latency average = 0.234 ms\ntps = 34123.456789 (without initial connection time)\n", pgbenchSays, sample{value: 34123.456789}, false},
	} {
		got, err := tt.said.parseFigures(tt.text)
		if (err != nil) != tt.fails || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
		if _, err := tt.said.parseFigures(""); err == nil {
			t.Errorf("%s: nothing said, and no error", tt.name)
		}
	}
}

// The words of command lines: those in quotes are whole, and none is left with braces.
func TestLine(t *testing.T) {
	e := &end{host: "h", port: "1", backHost: "b", backPort: "2", dir: "/a b", o: Options{duration: 2 * time.Second}}
	e.p.perSecond, e.p.faster = 10, 8
	for text, want := range map[string][]string{
		"x -H 'Connection: close' '' {dir}/f -n {count} {host}:{port}": {"x", "-H", "Connection: close", "", "/a b/f", "-n", "20", "h:1"},
		"x {backHost}:{backPort} {seconds}s":                           {"x", "b:2", "2s"},
	} {
		if got := e.splitLine(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	e.o.direct = true
	if got := e.expandWords("{count}"); got != "160" {
		t.Errorf("--direct-only: %s requests, want 160", got)
	}
	for _, p := range allPairs() {
		e.p = p
		texts := []string{p.server, p.client, p.bridgeClient, p.behind, p.before, p.prepare}
		for _, text := range p.files {
			texts = append(texts, text)
		}
		for _, text := range texts {
			if left := regexp.MustCompile(`\{[A-Za-z]+\}`).FindString(e.expandWords(text)); left != "" {
				t.Errorf("%s: %s is not known", p.Name, left)
			}
		}
		if strings.Contains(p.client, "{count}") != (p.perSecond > 0) {
			t.Errorf("%s: {count} is %d for a second", p.Name, p.perSecond)
		}
	}
}

// A run on TCP by mistake is an error.
func TestIsDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	mixed := `{"path":"tcp","choice":"tcp: why","received":{"shadow_bytes":%d}}` + "\n" + `{"path":"direct","received":{"direct_bytes":900}}` + "\n"
	for _, tt := range []struct {
		text string
		all  bool
		want string
	}{
		{"", false, "reported none"},
		{`{"path":"tcp","choice":"tcp: no broker"}` + "\n", false, "tcp: no broker"},
		{`{"path":"tcp","choice":"tcp"}` + "\n" + `{"path":"direct","choice":"direct"}` + "\n", false, ""},
		{fmt.Sprintf(mixed, 900), false, ""},
		{fmt.Sprintf(mixed, 900), true, "tcp: why"},
		{fmt.Sprintf(mixed, 100), true, ""},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := isDirect(path, tt.all); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

func TestProgramRows(t *testing.T) {
	p := Pairs()[0]
	o := Options{duration: time.Second}
	samples := map[int][]sample{0: {{10, 0, 0, 0}, {12, 0, 0, 0}, {11, 0, 0, 0}}, 1: {{40, 1, 2, 0}, {44, 1, 3, 0}, {45, 1, 2, 0}}}
	rows := p.makeRows(o, result.Machine{}, coredist.Distance{}, samples)
	if len(rows) != 2 || rows[0].Path != "tcp" || rows[1].Path != "direct" || rows[1].Measure != "iperf3" || rows[1].Median != 44 ||
		*rows[1].Ratio != 4 || *rows[0].Ratio != 1 || *rows[1].P99 != 2 || rows[0].P99 != nil || rows[1].Control != "tcp" {
		t.Errorf("rows %+v", rows)
	}
	p.udp = true
	if rows := p.makeRows(o, result.Machine{}, coredist.Distance{}, samples); rows[0].Path != "udp" || rows[1].Path != "direct" || rows[1].Control != "udp" || *rows[1].Ratio != 4 {
		t.Errorf("rows of UDP %+v", rows)
	}
	var b strings.Builder
	out, what := Options{runs: 3, duration: time.Second}.chooseTable(coredist.Distance{})
	out.Begin(&b, what, result.Machine{})
	out.Rows(&b, rows...)
	clitest.Fits(t, result.TableWidth, b.String())
}

// parse reads the arguments of "dsbench programs".
func parse(args []string) (*Options, error) {
	fs := pflag.NewFlagSet("programs", pflag.ContinueOnError)
	o := Define(fs)
	if err := fs.Parse(args); err != nil {
		return o, cli.FlagError(fs, err)
	}
	return o, o.Check()
}

func TestProgramsOptions(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--duration 1500ms", "whole seconds"},
		{"--duration 0s", "--duration"},
		{"--runs 0", "--runs"},
		{"--only iperf,x", `unknown measure "iperf"`},
		{"--exn-run /no/such", "go build"},
		{"--jobs 4", "there is no flag --jobs"},
		{"--network x", "--network"},
		{"--network bridge --only iperf3", "loopback only"},
	} {
		if _, err := parse(strings.Fields(tt.args)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	o, err := parse([]string{"--exn-run", "/bin/true", "--only", "iperf3,pgbench"})
	if err != nil || o.exnRun != "/bin/true" || len(o.only) != 2 || o.runs != 5 || o.duration != 2*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
}

// What the programs print never fells us.
func FuzzProgramOutput(f *testing.F) {
	for _, s := range []string{
		"", `{"end":{"sum_received":{"bits_per_second":1e9}}}`, "percentile 50.000 = 1.5\npercentile 99.000 =  9.",
		`"GET","1","2","3","4","5","6","7"`, "Requests/sec: 12.5\n 50%  1.00us\n", "tps = 12...3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, said := range []output{iperfSays, sockSays, redisSays, wrkSays, pgbenchSays, dnsSays} {
			if s, err := said.parseFigures(text); err == nil && (math.IsNaN(s.value) || s.value < 0 && !strings.Contains(text, "-")) {
				t.Errorf("%+v", s)
			}
		}
	})
}
