package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
	"exnet/fabric/link/wire"
	"exnet/internal/counter"
	"exnet/internal/netns/netnstest"
	"exnet/napi"
	"exnet/node/control"
)

var update = flag.Bool("update", false, "write the list of counters in docs/metrics.md anew")

func TestMetricsAddr(t *testing.T) {
	for in, want := range map[string]string{
		":9464": "127.0.0.1:9464", "0.0.0.0:1": "0.0.0.0:1", "[::1]:2": "[::1]:2", "localhost:3": "localhost:3", ":0": "127.0.0.1:0",
	} {
		if got, err := MetricsAddr(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", ":", "9464", "host:1", ":http", ":65536", "127.0.0.1", "::1:5", ":-1"} {
		if got, err := MetricsAddr(in); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	c, err := Config{Dir: "/d", Metrics: ":9464"}.WithDefaults()
	if err != nil || c.Metrics != "127.0.0.1:9464" {
		t.Errorf("%q, %v", c.Metrics, err)
	}
}

// scrape returns the samples of a page by name and labels, and its help texts.
func scrape(t *testing.T, url string) (samples map[string]float64, help map[string]string) {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", r.Status, err, text)
	}
	// The parser and the rules of Prometheus itself.
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Errorf("Prometheus cannot read it: %v", err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, namespace) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	samples, help = make(map[string]float64), make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, text, _ := strings.Cut(rest, " ")
			help[name] = text
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		samples[line[:i]] = v
	}
	return samples, help
}

// sampleStatus has one of everything.
func sampleStatus() *control.Status {
	s := &control.Status{Fabric: "lab", Node: 3, Since: time.UnixMilli(1500), RealTime: true, Groups: make([]control.Group, 2)}
	s.Interface = control.Interface{Name: "exn0", Up: true, MTU: 9000}
	s.Interface.Stats.RxPackets = 7
	s.Peers = []control.Peer{{Node: 1, State: "up", Links: 2}, {Node: 2, State: "connecting", Links: 1}, {Node: 4, State: "up"}}
	s.Receive.Units = []control.Unit{{Name: "velo", Frames: 40, WorkPerPoll: [napi.WorkBuckets]uint64{5, 4, 3, napi.WorkBuckets - 1: 1}}}
	s.Counters = counter.List{
		{Name: "exn.tx_stops", Value: 1}, {Name: "napi.velo.polls", Value: 13}, {Name: "napi.inline_runs", Value: 5}, {Name: "atu.regions", Value: 6},
		{Name: "wire.node2.crc_errors", Value: 1 << 52}, {Name: "wire.node4.crc_errors", Value: 9}, {Name: "new.thing", Value: 3},
	}
	return s
}

func serveMetrics(t *testing.T, c collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestCollector(t *testing.T) {
	times := broker.SetUpTimes{Sum: 1500 * time.Millisecond}
	times.Counts[0], times.Counts[1], times.Counts[len(times.Counts)-1] = 3, 2, 1
	sockets := &control.Sockets{Broker: "/b", SetUp: times, Connections: []connstats.Connection{{Mode: "direct"}, {Mode: "direct"}, {Mode: "shadow"}}}
	url := serveMetrics(t, collector{func() (*control.Status, error) { return sampleStatus(), nil }, func() *control.Sockets { return sockets }})
	got, _ := scrape(t, url)
	all := `fabric="lab",node="3"`
	for name, want := range map[string]float64{
		"exnet_exn_tx_stops_total{" + all + "}":                                    1,
		"exnet_napi_polls_total{" + all + `,unit="velo"}`:                          13,
		"exnet_napi_inline_runs_total{" + all + "}":                                5,
		"exnet_atu_regions{" + all + "}":                                           6,
		"exnet_wire_crc_errors_total{" + all + `,peer="2"}`:                        1 << 52,
		"exnet_wire_crc_errors_total{" + all + `,peer="4"}`:                        9,
		"exnet_new_thing_total{" + all + "}":                                       3,
		"exnet_start_time_seconds{" + all + "}":                                    1.5,
		"exnet_real_time{" + all + "}":                                             1,
		"exnet_groups{" + all + "}":                                                2,
		`exnet_interface_up{fabric="lab",interface="exn0",node="3"}`:               1,
		`exnet_interface_mtu_bytes{fabric="lab",interface="exn0",node="3"}`:        9000,
		`exnet_interface_rx_packets_total{fabric="lab",interface="exn0",node="3"}`: 7,
		"exnet_peers{" + all + `,state="up"}`:                                      2,
		"exnet_peers{" + all + `,state="connecting"}`:                              1,
		"exnet_peers{" + all + `,state="linking"}`:                                 0,
		"exnet_peer_links_total{" + all + `,peer="1"}`:                             2,
		"exnet_poll_frames_bucket{" + all + `,unit="velo",le="0"}`:                 5,
		"exnet_poll_frames_bucket{" + all + `,unit="velo",le="1"}`:                 9,
		"exnet_poll_frames_bucket{" + all + `,unit="velo",le="3"}`:                 12,
		"exnet_poll_frames_bucket{" + all + `,unit="velo",le="16383"}`:             12,
		"exnet_poll_frames_bucket{" + all + `,unit="velo",le="+Inf"}`:              13,
		"exnet_poll_frames_sum{" + all + `,unit="velo"}`:                           40,
		"exnet_poll_frames_count{" + all + `,unit="velo"}`:                         13,
		"exnet_set_up_seconds_bucket{" + all + `,le="2e-05"}`:                      3,
		"exnet_set_up_seconds_bucket{" + all + `,le="5e-05"}`:                      5,
		"exnet_set_up_seconds_bucket{" + all + `,le="5"}`:                          5,
		"exnet_set_up_seconds_bucket{" + all + `,le="+Inf"}`:                       6,
		"exnet_set_up_seconds_count{" + all + "}":                                  6,
		"exnet_set_up_seconds_sum{" + all + "}":                                    1.5,
		"exnet_broker{" + all + "}":                                                1,
		`exnet_connections{fabric="lab",mode="direct",node="3"}`:                   2,
		`exnet_connections{fabric="lab",mode="shadow",node="3"}`:                   1,
		`exnet_connections{fabric="lab",mode="demoted",node="3"}`:                  0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s: %v (%v), want %v", name, v, ok, want)
		}
	}
	// A node that is just ending says so.
	url = serveMetrics(t, collector{func() (*control.Status, error) { return nil, errors.New("the interface is gone") }, nil})
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if r.StatusCode != http.StatusInternalServerError || !strings.Contains(string(text), "the interface is gone") {
		t.Errorf("%s: %s", r.Status, text)
	}
}

// A node of two that serves metrics has all of its counters there, with words for each.
func TestRootMetrics(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes("10.2.0.1/24"), Metrics: ":0"})
	startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes("10.2.0.2/24"), Faults: new(wire.Faults)})
	startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes("10.2.0.3/24")})
	for _, addr := range []string{"10.2.0.2", "10.2.0.3"} {
		eventually(t, "ping", func() bool { _, err := ping(a.ns, addr); return err == nil })
	}
	s, err := a.Status()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/metrics$`).MatchString(s.Metrics) {
		t.Fatalf("at %q", s.Metrics)
	}
	samples, help := scrape(t, s.Metrics)
	layers := make(map[string]bool)
	for _, c := range s.Counters {
		name, labels := splitCounter(c.Name)
		if counterHelp[name] == "" {
			t.Errorf("counter %s: say in metricshelp.go what it counts", name)
		}
		metric := namespace + metricName(name)
		if !gauges[name] {
			metric += "_total"
		}
		if help[metric] == "" {
			t.Errorf("%s: no help", metric)
		}
		metric += `{fabric="lab",node="1"`
		if labels != nil {
			metric += fmt.Sprintf(",%s=%q", labels[0], labels[1])
		}
		if v, ok := samples[metric+"}"]; !ok || v < float64(c.Value) && !gauges[name] {
			t.Errorf("%s}: %v (%v), was %d before", metric, v, ok, c.Value)
		}
		layers[strings.Split(c.Name, ".")[0]] = true
	}
	for _, l := range []string{"ipstack", "exn", "exteth", "napi", "velo", "rma", "atu", "txloop", "shm", "wire", "broker", "refused"} {
		if !layers[l] {
			t.Errorf("no counters of %s", l)
		}
	}
	for _, name := range []string{`exnet_peers{fabric="lab",node="1",state="up"}`, `exnet_poll_frames_count{fabric="lab",node="1",unit="velo"}`, "process_open_fds", "go_goroutines"} {
		if samples[name] == 0 {
			t.Errorf("%s: %v", name, samples[name])
		}
	}
	if samples[`exnet_peers{fabric="lab",node="1",state="up"}`] != 2 {
		t.Error("not two peers")
	}

	// Nothing else is there.
	client := http.Client{Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	root := strings.TrimSuffix(s.Metrics, "/metrics")
	for path, want := range map[string]int{"/": 200, "/debug/pprof/": 404, "/metrics/x": 404} {
		r, err := client.Get(root + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	if r, err := client.Post(s.Metrics, "text/plain", strings.NewReader("x")); err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}

	// A port that is taken keeps the next node from coming up, in one line, and nothing
	// is left of it.
	addr := strings.TrimPrefix(root, "http://")
	_, err = Start(Config{Dir: dir, NetNS: netnstest.New(t).Path(), Fair: true, Metrics: addr})
	if err == nil || !strings.Contains(err.Error(), "address already in use: choose another address") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if nodes, err := control.Nodes(dir); err != nil || len(nodes) != 3 {
		t.Errorf("%d nodes, %v", len(nodes), err)
	}
	a.stop()
	eventually(t, "the port is free again", func() bool {
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			ln.Close()
		}
		return err == nil
	})
}

// monitoring returns the alerts and the expressions of the dashboard.
func monitoring(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "packaging", "monitoring")
	alerts, err := os.ReadFile(filepath.Join(dir, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(alerts)
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			b.WriteString(q.Expr + "\n")
		}
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("dashboard.json: panel %q has %d queries", p.Title, len(p.Targets))
		}
	}
	return b.String()
}

// listItem returns text as an item of a list, in lines of at most 100 characters.
func listItem(text string) string {
	item, line := "", "-"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 100 {
			item, line = item+line+"\n", " "
		}
		line += " " + word
	}
	return item + line + "\n"
}

// The list of counters in the documentation is what there is, and its alerts ask for
// metrics that there are.
func TestMetricsDoc(t *testing.T) {
	const begin, end = "-update -->\n", "<!-- end -->"
	path := filepath.Join("..", "..", "docs", "metrics.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	from, to := strings.Index(doc, begin)+len(begin), strings.Index(doc, end)
	list := ""
	known := make(map[string]bool)
	for _, name := range slices.SortedFunc(maps.Keys(counterHelp), cmp.Compare) {
		metric, kind := namespace+metricName(name), "Gauge: "
		if !gauges[name] {
			metric, kind = metric+"_total", ""
		}
		known[metric] = true
		list += listItem(fmt.Sprintf("`%s`: %s%s", name, kind, counterHelp[name]))
	}
	if got := doc[from:to]; got != list {
		if *update {
			if err := os.WriteFile(path, []byte(doc[:from]+list+doc[to:]), 0o644); err != nil {
				t.Fatal(err)
			}
			doc = doc[:from] + list + doc[to:]
		} else {
			t.Error("docs/metrics.md: the list of counters is out of date: go test ./node/daemon -run MetricsDoc -update rewrites it")
		}
	}
	sockets := func() *control.Sockets { return new(control.Sockets) }
	_, help := scrape(t, serveMetrics(t, collector{func() (*control.Status, error) { return sampleStatus(), nil }, sockets}))
	head := strings.ReplaceAll(doc[:from], "exnet_exn_tx_stops_total", "") + monitoring(t)
	for name := range help {
		told := known[name] // as a counter
		known[name] = true
		if !told && !strings.Contains(doc, "`"+name+"`") && !strings.HasPrefix(name, "exnet_interface_") && name != "exnet_new_thing_total" {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`exnet_[a-z0-9_]+[a-z]\b`).FindAllString(head, -1) {
		if strings.HasPrefix(name, "exnet_agent_") { // package agent has a test for them
			continue
		}
		if !known[name] && !known[strings.TrimSuffix(name, "_bucket")] && !strings.HasPrefix(name, "exnet_interface") {
			t.Errorf("docs/metrics.md or packaging/monitoring: there is no %s", name)
		}
	}
}

// Who may rename the interface, such as root of a container, does not take the node's metrics away:
// a label that is not UTF-8 made each scrape fail.
func TestInterfaceOfAnyName(t *testing.T) {
	for _, name := range []string{"\xff\xfe", "a\"}\n# x", "\x1b[2J"} {
		s := sampleStatus()
		s.Interface.Name = name
		url := serveMetrics(t, collector{func() (*control.Status, error) { return s, nil }, func() *control.Sockets { return new(control.Sockets) }})
		if got, _ := scrape(t, url); got[`exnet_exn_tx_stops_total{fabric="lab",node="3"}`] != 1 {
			t.Errorf("%q: %v", name, got)
		}
	}
}
