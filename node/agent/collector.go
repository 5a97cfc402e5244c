package agent

import (
	"slices"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"

	"github.com/prometheus/client_golang/prometheus"
)

// maxContainers is how many containers have metrics of their own; those of others are one more,
// "other".
const maxContainers = 1024

var (
	containerLabels = []string{"container", "name"}
	namespacesDesc  = prometheus.NewDesc("exnet_agent_namespaces", "Network namespaces that the agent serves.", nil, nil)
	connectionsDesc = prometheus.NewDesc("exnet_agent_connections", "Open connections of programs that use direct sockets.",
		append([]string{"mode"}, containerLabels...), nil)
	sentDesc = prometheus.NewDesc("exnet_agent_direct_sent_bytes_total",
		"Bytes that the programs of a container have sent by direct sockets.", containerLabels, nil)
	receivedDesc = prometheus.NewDesc("exnet_agent_direct_received_bytes_total",
		"Bytes that the programs of a container have received by direct sockets.", containerLabels, nil)
)

// Collector makes metrics of the containers that an agent serves, at each scrape.
//
// Concurrency: all methods may be called from many goroutines.
type Collector struct{ sockets func() []*control.Sockets }

// NewCollector makes the metrics of this host's agent, which it asks as exn-tun status does.
func NewCollector() *Collector {
	return &Collector{func() []*control.Sockets {
		all, err := control.Brokers()
		if err != nil {
			return nil // a broker of another version
		}
		return slices.DeleteFunc(all, func(s *control.Sockets) bool { return s.Direct == nil })
	}}
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{namespacesDesc, connectionsDesc, sentDesc, receivedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	all := c.sockets()
	out <- prometheus.MustNewConstMetric(namespacesDesc, prometheus.GaugeValue, float64(len(all)))
	sums := make(map[control.Whose]*containerSum)
	for _, s := range all {
		whose := control.Whose{Container: strings.ToValidUTF8(s.Container, "?"), Name: s.Name}
		if sums[whose] == nil && len(sums) >= maxContainers {
			whose = control.Whose{Container: "other", Name: "other"}
		}
		sum := sums[whose]
		if sum == nil {
			sum = &containerSum{modes: make(map[string]int)}
			sums[whose] = sum
		}
		sum.add(s)
	}
	for whose, sum := range sums {
		labels := []string{whose.Container, whose.Name}
		for mode, n := range sum.modes {
			out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(n), append([]string{mode}, labels...)...)
		}
		out <- prometheus.MustNewConstMetric(sentDesc, prometheus.CounterValue, float64(sum.direct.Sent.Bytes), labels...)
		out <- prometheus.MustNewConstMetric(receivedDesc, prometheus.CounterValue, float64(sum.direct.Received.Bytes), labels...)
	}
}

// containerSum is what a container's metrics say.
type containerSum struct {
	modes  map[string]int
	direct connstats.Total
}

func (t *containerSum) add(s *control.Sockets) {
	for _, c := range s.Connections {
		t.modes[c.Mode]++
	}
	if s.Direct != nil {
		t.direct = t.direct.Plus(*s.Direct)
	}
}
