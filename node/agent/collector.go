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
	connectionsDesc = prometheus.NewDesc("exnet_agent_connections", "Open connections of programs that use direct sockets, by how they are carried, and why.",
		append([]string{"mode", "reason"}, containerLabels...), nil)
	openDesc = prometheus.NewDesc("exnet_agent_open_sent_bytes", "Bytes that these have sent, direct (way is direct) or by the kernel (tcp).",
		append([]string{"way", "reason"}, containerLabels...), nil)
	sentDesc     = totalDesc("direct_sent_bytes", "Bytes that the programs of a container have sent by direct sockets.")
	receivedDesc = totalDesc("direct_received_bytes", "Bytes that the programs of a container have received by direct sockets.")
	returnsDesc  = totalDesc("returns", "Direct connections that programs of a container have taken back to TCP.")
	sleepsDesc   = totalDesc("sleeps", "How often programs of a container have slept until there were data.")
	spinsDesc    = totalDesc("spins", "How often programs of a container have spun for data, and whether there were some (result is hit or miss).", "result")
)

// totalDesc describes a counter of a container.
func totalDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("exnet_agent_"+name+"_total", help, append(labels, containerLabels...), nil)
}

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
	for _, d := range []*prometheus.Desc{namespacesDesc, connectionsDesc, openDesc, sentDesc, receivedDesc, returnsDesc, sleepsDesc, spinsDesc} {
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
			sum = &containerSum{open: make(map[openKey]int), sent: make(map[openKey]uint64)}
			sums[whose] = sum
		}
		sum.addSockets(s)
	}
	for whose, sum := range sums {
		sum.collectSum(out, []string{whose.Container, whose.Name})
	}
}

// containerSum is what a container's metrics say.
type containerSum struct {
	open   map[openKey]int    // connections
	sent   map[openKey]uint64 // bytes
	direct connstats.Total
}

// openKey is how open connections are carried, and why.
type openKey struct{ how, reason string }

func (t *containerSum) addSockets(s *control.Sockets) {
	for _, c := range s.Connections {
		reason := c.Reason
		if !slices.Contains(reasons, reason) { // a program can write any
			reason = "unknown"
		}
		t.open[openKey{c.Mode, reason}]++
		t.sent[openKey{"direct", reason}] += c.Sent.DirectBytes
		t.sent[openKey{"tcp", reason}] += c.Sent.ShadowBytes
	}
	if s.Direct != nil {
		t.direct = t.direct.Plus(*s.Direct)
	}
}

// reasons are those that connections may have.
var reasons = func() (all []string) {
	for w := connstats.WhyNothing; w <= connstats.WhyLast; w++ {
		all = append(all, w.String())
	}
	return all
}()

// collectSum makes the metrics.
func (t *containerSum) collectSum(out chan<- prometheus.Metric, labels []string) {
	gauge := func(d *prometheus.Desc, n float64, key openKey) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{key.how, key.reason}, labels...)...)
	}
	for key, n := range t.open {
		gauge(connectionsDesc, float64(n), key)
	}
	for key, n := range t.sent {
		gauge(openDesc, float64(n), key)
	}
	counter := func(d *prometheus.Desc, n uint64, more ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append(more, labels...)...)
	}
	counter(sentDesc, t.direct.Sent.Bytes)
	counter(receivedDesc, t.direct.Received.Bytes)
	counter(returnsDesc, t.direct.Returns)
	counter(sleepsDesc, t.direct.Sleeps)
	counter(spinsDesc, t.direct.SpinHits, "hit")
	counter(spinsDesc, t.direct.SpinFails, "miss")
}
