package agent

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"

	"github.com/prometheus/client_golang/prometheus"
)

// scraped returns the metrics of a scrape by their names and labels.
func scraped(t *testing.T, sockets []*control.Sockets) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(&Collector{func() []*control.Sockets { return sockets }}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "exnet_agent_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// A container's connections and its direct bytes have its ID and its name as labels.
func TestCollector(t *testing.T) {
	direct := connstats.ModeDirect.String()
	total := &connstats.Total{
		Sent: connstats.Amount{Bytes: 7}, Received: connstats.Amount{Bytes: 9},
		Waits: connstats.Waits{Sleeps: 3, SpinHits: 4, SpinFails: 5}, Returns: 2,
	}
	breach := connstats.WhyBreach.String()
	got := scraped(t, []*control.Sockets{
		{Whose: control.Whose{Name: "host"}, Direct: &connstats.Total{}},
		{Whose: control.Whose{Container: "0123456789ab", Name: "db"}, Direct: total, Connections: []connstats.Connection{
			{Mode: direct, Sent: connstats.Traffic{DirectBytes: 10, ShadowBytes: 1}}, {Mode: direct, Sent: connstats.Traffic{DirectBytes: 20}},
			{Mode: "shadow", Reason: breach, Sent: connstats.Traffic{ShadowBytes: 6}}, {Mode: "shadow", Reason: "\xff"},
		}},
	})
	want := map[string]float64{
		"namespaces": 2, "connections 0123456789ab direct db ": 2, "connections 0123456789ab shadow db breach": 1,
		"connections 0123456789ab shadow db unknown": 1,
		"open_sent_bytes 0123456789ab db  direct":    30, "open_sent_bytes 0123456789ab db  tcp": 1,
		"open_sent_bytes 0123456789ab db breach direct": 0, "open_sent_bytes 0123456789ab db breach tcp": 6,
		"open_sent_bytes 0123456789ab db unknown direct": 0, "open_sent_bytes 0123456789ab db unknown tcp": 0,
		"returns_total 0123456789ab db": 2, "sleeps_total 0123456789ab db": 3,
		"spins_total 0123456789ab db hit": 4, "spins_total 0123456789ab db miss": 5,
		"returns_total  host": 0, "sleeps_total  host": 0, "spins_total  host hit": 0, "spins_total  host miss": 0,
		"direct_sent_bytes_total 0123456789ab db": 7, "direct_received_bytes_total 0123456789ab db": 9,
		"direct_sent_bytes_total  host": 0, "direct_received_bytes_total  host": 0,
	}
	for key, n := range want {
		if v, ok := got[key]; !ok || v != n {
			t.Errorf("%s: %v, want %v", key, v, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	checkNames(t, got)
}

// checkNames compares names with those of the page, of the alerts and of the dashboard.
func checkNames(t *testing.T, got map[string]float64) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, name := range regexp.MustCompile("`exnet_agent_([a-z_]+)`").FindAllStringSubmatch(string(doc), -1) {
		told[name[1]] = true
	}
	for key := range got {
		name, _, _ := strings.Cut(key, " ")
		if !told[name] {
			t.Errorf("docs/metrics.md does not tell of exnet_agent_%s", name)
		}
	}
	if len(told) != 8 {
		t.Errorf("docs/metrics.md tells of %v", told)
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../packaging/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		asked := regexp.MustCompile("exnet_agent_([a-z_]+)").FindAllStringSubmatch(string(text), -1)
		for _, name := range asked {
			if !told[name[1]] {
				t.Errorf("%s: there is no %s", file, name[0])
			}
		}
		if len(asked) == 0 {
			t.Errorf("%s has nothing of an agent", file)
		}
		for _, reason := range regexp.MustCompile(`reason=~?\\?"([^"\\]+)`).FindAllStringSubmatch(string(text), -1) {
			for r := range strings.SplitSeq(reason[1], "|") {
				if !slices.Contains(reasons, r) {
					t.Errorf("%s: no connection has the reason %q", file, r)
				}
			}
		}
	}
}

// However many containers there are, a page has a bounded number of metrics, and loses no bytes.
func TestCollectorBounded(t *testing.T) {
	const containers = 3000
	var all []*control.Sockets
	for i := range containers {
		all = append(all, &control.Sockets{Whose: control.Whose{Container: fmt.Sprint(i), Name: "\xffx"}, Direct: &connstats.Total{Sent: connstats.Amount{Bytes: 1}}})
	}
	all[0].Name = "x"
	for _, s := range all {
		s.Name = strings.ToValidUTF8(s.Name, "?")
	}
	got, sent := scraped(t, all), 0.0
	for key, v := range got {
		if strings.HasPrefix(key, "direct_sent") {
			sent += v
		}
	}
	if sent != containers || len(got) > 6*(maxContainers+1)+1 || got["direct_sent_bytes_total other other"] != containers-maxContainers {
		t.Errorf("%d metrics, %v bytes, %v of others", len(got), sent, got["direct_sent_bytes_total other other"])
	}
}
