package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"exnet/node"
)

// iperfResult is what the tests read of iperf3's JSON report.
type iperfResult struct {
	End struct {
		SumSent        iperfSum `json:"sum_sent"`
		SumReceived    iperfSum `json:"sum_received"`
		ReverseSent    iperfSum `json:"sum_sent_bidir_reverse"`
		ReverseReceive iperfSum `json:"sum_received_bidir_reverse"`
		Sum            struct {
			Packets uint64 `json:"packets"`
			Lost    uint64 `json:"lost_packets"`
		} `json:"sum"`
	} `json:"end"`
	Error string `json:"error"`
}

type iperfSum struct {
	Bytes uint64  `json:"bytes"`
	Rate  float64 `json:"bits_per_second"`
}

const iperfPort = "5201"

// iperf runs iperf3 from h to the server at to, on port.
func (h *host) iperf(t *testing.T, server *host, to, port string, options ...string) iperfResult {
	t.Helper()
	return h.startIperf(t, server, to, port, options...)()
}

// startIperf starts iperf3, and returns a function that waits for its end.
func (h *host) startIperf(t *testing.T, server *host, to, port string, options ...string) (wait func() iperfResult) {
	t.Helper()
	s := server.start(t, "iperf3", "-s", "-1", "-p", port)
	s.listens(t, port)
	c := h.start(t, slices.Concat([]string{"iperf3", "-J", "-c", to, "-p", port}, options)...)
	return func() (r iperfResult) {
		t.Helper()
		out := c.wait(t)
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Error != "" {
			t.Fatalf("%v %s\n%s", err, r.Error, out)
		}
		s.wait(t)
		return r
	}
}

// The amount of data is given, not the time, so that a slow machine does the
// same. (iperf3 stops counting what is received when all is sent.)
func TestRootIperf(t *testing.T) {
	need(t, "iperf3")
	const size = 64 << 20
	bytes := []string{"-n", strconv.Itoa(size)}
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		eachFamily(t, func(t *testing.T, fam family) {
			for _, tt := range []struct {
				name    string
				options []string
				ab, ba  bool // which way the data goes
			}{
				{"one stream", nil, true, false},
				{"reverse", []string{"-R"}, false, true},
				{"four streams", []string{"-P", "4"}, true, false},
				{"both ways", []string{"--bidir"}, true, true},
			} {
				t.Run(tt.name, func(t *testing.T) {
					beforeA, beforeB := a.counters(), b.counters()
					r := a.iperf(t, b, fam.of(b).String(), iperfPort, slices.Concat(bytes, tt.options)...)
					if r.End.SumReceived.Bytes == 0 || tt.ab && tt.ba && r.End.ReverseReceive.Bytes == 0 {
						t.Errorf("nothing received: %+v", r.End)
					}
					// Data goes by rendezvous, its acknowledgements eagerly.
					if tt.ab {
						checkBulk(t, a, b, beforeA, beforeB, r.End.SumReceived.Bytes)
					}
					if tt.ba && tt.ab {
						checkBulk(t, b, a, beforeB, beforeA, r.End.ReverseReceive.Bytes)
					} else if tt.ba {
						checkBulk(t, b, a, beforeB, beforeA, r.End.SumReceived.Bytes)
					}
				})
			}
			for _, tt := range []struct {
				name    string
				payload int
				counter string
			}{
				{"udp eager", 400, "exteth.rx_eager"},
				{"udp rendezvous", 1400, "exteth.rx_rendezvous"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					const packets = 1000
					before := b.counters()
					r := a.iperf(t, b, fam.of(b).String(), iperfPort, "-u", "-b", "50M",
						"-l", strconv.Itoa(tt.payload), "-n", strconv.Itoa(packets*tt.payload))
					// The kernel drops datagrams when the queue of exn0 or of the
					// socket is full, as on a slow machine. The fabric loses none.
					if r.End.Sum.Packets < packets || r.End.Sum.Lost == r.End.Sum.Packets {
						t.Errorf("%d packets, %d lost, want at least %d", r.End.Sum.Packets, r.End.Sum.Lost, packets)
					}
					checkGrowth(t, before, b.counters, atLeast(tt.counter, r.End.Sum.Packets-r.End.Sum.Lost))
				})
			}
		})
	})
}

// checkBulk fails the test unless size bytes of TCP data went from one node to
// another by rendezvous and acknowledgements came back eagerly.
func checkBulk(t *testing.T, from, to *host, beforeFrom, beforeTo counters, size uint64) {
	t.Helper()
	checkGrowth(t, beforeFrom, from.counters, atLeast("exteth.tx_rendezvous", 1))
	checkGrowth(t, beforeFrom, from.counters, atLeast("exteth.rx_eager", 1))
	checkGrowth(t, beforeTo, to.counters, atLeast("rma.get_bytes", size))
}
