package exntun

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/counter"
	"exnet/internal/netns"
	"exnet/internal/version"
	"exnet/node"
	"exnet/node/hostnet"
)

// report is the result of a demonstration. Its JSON form is what --json prints.
type report struct {
	OK      bool        `json:"ok"`              // all checks passed
	Error   string      `json:"error,omitempty"` // why the demonstration ended early
	Checks  []check     `json:"checks"`
	Figures []figure    `json:"figures"`
	Direct  directCount `json:"direct"`
	NoRedis string      `json:"no_redis,omitempty"` // why redis was not measured

	// How it was started, which decides what a user can do next.
	goRun, root bool
	Frames      lab.Frames   `json:"frames"`
	Nodes       []nodeInfo   `json:"nodes"`
	DataPath    counter.List `json:"data_path"` // counters of what all nodes share
	Setup       setup        `json:"setup"`
	Version     string       `json:"version"`
	Go          string       `json:"go"`
	CPUs        int          `json:"cpus"`
}

// directCount is what went while direct sockets were measured with programs of the demonstration.
type directCount struct {
	Bytes    uint64 `json:"bytes"`        // that the programs received
	TCPBytes uint64 `json:"tcp_bytes"`    // of these, by the connections' own counters, over TCP
	Before   uint64 `json:"before"`       // by the same counters, over TCP before it was measured, until the connections were direct
	Kernel   uint64 `json:"kernel_bytes"` // that TCP carried while it was measured, as the kernel counts them
	ExnBytes uint64 `json:"exn_bytes"`    // that came to the two nodes over exn0 meanwhile, by its counters
}

// check is the outcome of a check.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`

	measured bool // it has a figure, if it worked
	basic    bool // it is of exn0 alone
}

// setup is how the nodes were configured.
type setup struct {
	Nodes          int     `json:"nodes"`
	MTU            int     `json:"mtu"`
	EagerThreshold int     `json:"eager_threshold"`
	VELOBudget     int     `json:"velo_budget"`
	RMABudget      int     `json:"rma_budget"`
	FastPath       bool    `json:"fast_path"`
	RealTime       bool    `json:"real_time"`
	Congestion     string  `json:"congestion"`
	Ping           string  `json:"ping"`
	Faults         *string `json:"faults,omitempty"` // of every link; left out: memory joins the nodes
	DurationSec    float64 `json:"duration_s"`
	VethMTU        int     `json:"veth_mtu"`
}

// nodeInfo is one node and what it counted.
type nodeInfo struct {
	Node     int          `json:"node"`
	Addr     string       `json:"addr"`
	Addr6    string       `json:"addr6"`
	MAC      string       `json:"mac"`
	Counters counter.List `json:"counters"`
}

// addCheck records the outcome of a check: the text of err, or detail if err is nil.
func (r *report) addCheck(name string, err error, detail string) {
	c := check{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		c.Detail = cli.Text(err)
	}
	r.Checks = append(r.Checks, c)
}

// setOK sets OK: some checks were made, and none failed.
func (r *report) setOK() {
	r.OK = r.Error == "" && len(r.Checks) > 0 && len(r.failedChecks()) == 0
}

// failedChecks returns the names of the checks that failed.
func (r *report) failedChecks() []string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// newReport returns a report that has the setup and no checks yet.
func newReport(o demoOptions, ping lab.Pinger) *report {
	r := &report{
		Checks: []check{}, Figures: []figure{}, Nodes: []nodeInfo{},
		goRun: lab.GoRun(), root: os.Geteuid() == 0 && !netns.InUserNS(),
		Setup: setup{
			Nodes: o.nodes, MTU: int(o.mtu), EagerThreshold: o.eager,
			VELOBudget: o.veloBudget, RMABudget: o.rmaBudget, FastPath: !o.noFastPath,
			Congestion: o.congestion, Ping: ping.Name, DurationSec: o.duration.Seconds(),
		},
		Version: version.String(), Go: runtime.Version(), CPUs: runtime.NumCPU(),
	}
	if o.faults != nil {
		r.Setup.Faults = new(o.faults.String())
	}
	return r
}

// recordNodes records the nodes and the interfaces.
func (r *report) recordNodes(l *lab.Lab, veth lab.Path) error {
	r.Setup.RealTime = l.RealTime
	r.Nodes = describeNodes(l)
	conn, err := hostnet.Open(veth.A.NS)
	if err != nil {
		return err
	}
	defer conn.Close()
	link, err := conn.Link(lab.VethName)
	r.Setup.VethMTU = link.MTU
	return err
}

// countAll records all counters.
func (r *report) countAll(l *lab.Lab) {
	r.Frames = l.SinceStart()
	r.Nodes = describeNodes(l)
	r.DataPath = countersOfLoop(l)
}

// describeNodes returns the nodes with their present counters.
func describeNodes(l *lab.Lab) []nodeInfo {
	var nodes []nodeInfo
	for i, n := range l.Cluster.Nodes {
		nodes = append(nodes, nodeInfo{
			Node:     1 + i,
			Addr:     node.Addr4(i).Addr().String(),
			Addr6:    node.Addr6(i).Addr().String(),
			MAC:      macString(n.Interface.MAC()),
			Counters: l.Cluster.Counters(i),
		})
	}
	return nodes
}

func macString(mac [6]byte) string {
	octets := make([]string, len(mac))
	for i, b := range mac {
		octets[i] = fmt.Sprintf("%02x", b)
	}
	return strings.Join(octets, ":")
}

// printJSON writes the report in one line.
func (r *report) printJSON(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}
