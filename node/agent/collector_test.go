package agent

import (
	"fmt"
	"os"
	"regexp"
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
	total := &connstats.Total{Sent: connstats.Amount{Bytes: 7}, Received: connstats.Amount{Bytes: 9}}
	got := scraped(t, []*control.Sockets{
		{Whose: control.Whose{Name: "host"}, Direct: &connstats.Total{}},
		{Whose: control.Whose{Container: "0123456789ab", Name: "db"}, Direct: total, Connections: []connstats.Connection{{Mode: direct}, {Mode: direct}, {Mode: "shadow"}}},
	})
	want := map[string]float64{
		"namespaces": 2, "connections 0123456789ab direct db": 2, "connections 0123456789ab shadow db": 1,
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
	if len(told) != 4 {
		t.Errorf("docs/metrics.md tells of %v", told)
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
	if sent != containers || len(got) > 2*(maxContainers+1)+1 || got["direct_sent_bytes_total other other"] != containers-maxContainers {
		t.Errorf("%d metrics, %v bytes, %v of others", len(got), sent, got["direct_sent_bytes_total other other"])
	}
}
