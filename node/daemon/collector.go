package daemon

import (
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
	"exnet/fabric/emp"
	"exnet/internal/cli"
	"exnet/internal/counter"
	"exnet/internal/version"
	"exnet/napi"
	"exnet/node/control"
)

// namespace begins the names of all metrics.
const namespace = "exnet_"

// gauges are the counters that also go down.
var gauges = map[string]bool{"atu.regions": true, "relay.connections": true, "stream.rtt_micros": true, "stream.tx_rate": true, "stream.rx_rate": true}

// collector makes metrics of a node's status at each scrape.
//
// Concurrency: all methods may be called from many goroutines.
type collector struct {
	status  func() (*control.Status, error)
	sockets func() *control.Sockets
}

// Describe implements prometheus.Collector. It describes no metric, because the set of
// metrics depends on the peers.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.status()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	m := metrics{out: out, labels: prometheus.Labels{"fabric": s.Fabric, "node": strconv.Itoa(s.Node)}}
	for _, e := range s.Counters {
		m.addCounter(e.Name, e.Value)
	}
	m.addNode(s)
	m.addPeers(s)
	for _, u := range s.Receive.Units {
		m.addPolls(u)
	}
	m.addConnections(c.sockets())
}

// metrics are the metrics of one scrape.
type metrics struct {
	out    chan<- prometheus.Metric
	labels prometheus.Labels // of all
}

// addMetric adds a metric. labels are names and values in turn.
func (m metrics) addMetric(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	m.out <- prometheus.MustNewConstMetric(m.describeMetric(name, help, labels), kind, value, labelValues(labels)...)
}

func (m metrics) describeMetric(name, help string, labels []string) *prometheus.Desc {
	var names []string
	for i := 0; i < len(labels); i += 2 {
		names = append(names, labels[i])
	}
	return prometheus.NewDesc(namespace+name, help, names, m.labels)
}

func labelValues(labels []string) (v []string) {
	for i := 1; i < len(labels); i += 2 {
		v = append(v, cli.Printable(labels[i])) // anybody may have named an interface
	}
	return v
}

// addCounter adds one of the status's counters: layer.name, layer.unit.name or
// layer.node2.name.
func (m metrics) addCounter(full string, v uint64) {
	name, labels := splitCounter(full)
	if gauges[name] {
		m.addMetric(prometheus.GaugeValue, metricName(name), helpOf(name), float64(v), labels...)
		return
	}
	m.addMetric(prometheus.CounterValue, metricName(name)+"_total", helpOf(name), float64(v), labels...)
}

// splitCounter removes the unit or peer from a counter's name and returns it as a label.
func splitCounter(full string) (name string, labels []string) {
	parts := strings.Split(full, ".")
	if len(parts) != 3 {
		return full, nil
	}
	if peer, ok := strings.CutPrefix(parts[1], "node"); ok {
		labels = []string{"peer", peer}
	} else {
		labels = []string{"unit", parts[1]}
	}
	return parts[0] + "." + parts[2], labels
}

func metricName(counter string) string { return strings.ReplaceAll(counter, ".", "_") }

func helpOf(counter string) string {
	if h := counterHelp[counter]; h != "" {
		return h
	}
	return "Counter " + counter + "." // no help text: a test fails
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// addNode adds the metrics that a node has once.
func (m metrics) addNode(s *control.Status) {
	gauge := prometheus.GaugeValue
	m.addMetric(gauge, "info", "Always 1; the labels say what runs.", 1, "version", version.String(), "go", runtime.Version())
	m.addMetric(gauge, "start_time_seconds", "When the node came up (Unix time).", float64(s.Since.UnixMilli())/1000)
	m.addMetric(gauge, "real_time", "1: the data path runs at real-time priority.", bit(s.RealTime))
	m.addWaitTimes(s.Waits)
	m.addMetric(gauge, "groups", "IP multicast groups of the fabric that have members.", float64(len(s.Groups)))
	i := s.Interface
	m.addMetric(gauge, "interface_up", "1: the interface is up.", bit(i.Up), "interface", i.Name)
	m.addMetric(gauge, "interface_mtu_bytes", "Largest IP packet of the interface.", float64(i.MTU), "interface", i.Name)
	for name, v := range counter.All(i.Stats) {
		m.addMetric(prometheus.CounterValue, "interface_"+name+"_total", "The kernel's counter "+name+" of the interface.", float64(v), "interface", i.Name)
	}
}

// addPeers adds the metrics of the other nodes.
func (m metrics) addPeers(s *control.Status) {
	states := []string{emp.Connecting.String(), emp.Linking.String(), emp.Up.String()}
	count := make(map[string]int)
	for _, p := range s.Peers {
		count[p.State]++
		m.addMetric(prometheus.CounterValue, "peer_links_total", "Times that the peer was linked.", float64(p.Links), "peer", strconv.Itoa(p.Node))
	}
	for _, state := range states {
		m.addMetric(prometheus.GaugeValue, "peers", "Other nodes of the fabric, by the state of the link to them.", float64(count[state]), "state", state)
	}
}

// addPolls adds the histogram of a unit's polls.
func (m metrics) addPolls(u control.Unit) {
	// Bucket 0 is of polls without work, bucket k of those with less than 2^k frames.
	buckets, polls := make(map[float64]uint64), uint64(0)
	for k, n := range u.WorkPerPoll {
		polls += n
		if k < napi.WorkBuckets-1 {
			buckets[float64(uint64(1)<<k-1)] = polls
		}
	}
	labels := []string{"unit", u.Name}
	m.out <- prometheus.MustNewConstHistogram(m.describeMetric("poll_frames", "Frames that one poll handled.", labels),
		polls, float64(u.Frames), buckets, labelValues(labels)...)
}

// addConnections adds the numbers of direct sockets.
func (m metrics) addConnections(s *control.Sockets) {
	m.addMetric(prometheus.GaugeValue, "broker", "1: the node is the broker of direct sockets of its namespace.", bit(s.Broker != ""))
	m.setUp(s.SetUp)
	count := make(map[string]int)
	for _, c := range s.Connections {
		count[c.Mode]++
	}
	for _, mode := range []connstats.Mode{connstats.ModeDirect, connstats.ModeTCP, connstats.ModeDemoted} {
		m.addMetric(prometheus.GaugeValue, "connections", "Connections of programs that use direct sockets, by what they are now.",
			float64(count[mode.String()]), "mode", mode.String())
	}
}

// addWaitTimes adds the histogram of how long packets waited for the loop.
func (m metrics) addWaitTimes(t counter.WaitTimes) {
	buckets, all := make(map[float64]uint64), uint64(0)
	for i, n := range t.Counts {
		all += n
		if i < len(counter.WaitBounds) {
			buckets[counter.WaitBounds[i].Seconds()] = all
		}
	}
	m.out <- prometheus.MustNewConstHistogram(m.describeMetric("packet_wait_seconds", "How long packets of this host waited until the data path's thread had carried them: the first of each burst.", nil),
		all, t.Sum.Seconds(), buckets)
}

// setUp adds the histogram of the times until offers were claimed.
func (m metrics) setUp(t broker.SetUpTimes) {
	buckets, all := make(map[float64]uint64), uint64(0)
	for i, n := range t.Counts {
		all += n
		if i < len(broker.SetUpBounds) {
			buckets[broker.SetUpBounds[i].Seconds()] = all
		}
	}
	m.out <- prometheus.MustNewConstHistogram(m.describeMetric("set_up_seconds", "How long direct connections that programs here began took from the offer until the other end had it.", nil),
		all, t.Sum.Seconds(), buckets)
}
