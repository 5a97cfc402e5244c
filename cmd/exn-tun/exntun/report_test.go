package exntun

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/counter"
)

// sampleReport is a report with something of everything.
func sampleReport() *report {
	o := demoOptions{nodes: 2, mtu: 65535, eager: 480, veloBudget: 64, rmaBudget: 32, congestion: "cubic", duration: time.Second}
	r := newReport(o, lab.Pinger{Name: "/bin/ping"})
	r.Version, r.Go, r.CPUs = "(devel)", "go1.26", 2
	r.Setup.RealTime, r.Setup.VethMTU = true, 1500
	r.goRun, r.root = false, true
	r.Nodes = []nodeInfo{
		{1, "10.2.0.1", "fd00:10:2::1", "2e:87:04:07:00:01", counter.List{{Name: "exteth.tx_eager", Value: 7}}},
		{2, "10.2.0.2", "fd00:10:2::2", "2e:87:04:07:00:02", counter.List{{Name: "exteth.rx_eager", Value: 7}}},
	}
	r.DataPath = counter.List{{Name: "txloop.packets", Value: 123}}
	for _, f := range []figure{
		{"stream", "IPv4", "Gbit/s", sample{39.8, 35, 41.3, 3}, sample{56.7, 53.7, 61.4, 3}, sample{155.5, 149, 160.2, 3}, 0.7019, 2.7425, "stream, 128 KiB writes"},
		{"pingpong", "IPv4", "us", sample{9.876, 9.1, 12345.6, 3}, sample{138936.4, 999, 138999, 3}, sample{0.125, 0.12, 0.13, 3}, 0.00007, 99999, "ping-pong, 64 bytes"},
		{"redis", "IPv4", "1/s", sample{30465, 30000, 31000, 3}, sample{57307, 55000, 58000, 3}, sample{}, 0.532, 0, "redis GET, 50 clients"},
	} {
		r.Figures = append(r.Figures, f)
		r.addCheck(f.Measure+", "+f.Family, nil, f.String())
		r.Checks[len(r.Checks)-1].measured = true
	}
	r.Frames = lab.Frames{
		Eager: both(4812345678), Rendezvous: both(64033), Broadcast: both(20),
	}
	r.Direct = directCount{Bytes: 12_000_000_000, TCPBytes: 1_000_000, Before: 152_000_000, ExnBytes: 155_000_000}
	r.addCheck("transfer, IPv4", nil, "64 MiB, SHA-256 equal; the fabric carried 64.1 MiB")
	r.addCheck("programs, IPv4", nil, "perl and bash: 1 MiB each, SHA-256 equal")
	detail, err := r.Direct.checkDirect()
	r.addCheck("direct", err, detail)
	r.addCheck("frames", nil, "every one that left a node arrived; no packet was dropped")
	r.setOK()
	return r
}

func TestTable(t *testing.T) {
	var b strings.Builder
	sampleReport().printTable(&b)
	fits(t, b.String())
	golden(t, "table.txt", b.String())
}

// One screen has 80 columns and 24 lines, of which a shell's prompts take two.
func TestScreen(t *testing.T) {
	var b strings.Builder
	sampleReport().printScreen(&b)
	fits(t, b.String())
	if n := strings.Count(b.String(), "\n"); n > 22 {
		t.Errorf("%d lines", n)
	}
	golden(t, "screen.txt", b.String())
}

// The last lines are commands that work as the demonstration was started.
func TestScreenNext(t *testing.T) {
	for name, r := range map[string]report{"go run": {goRun: true}, "user": {}, "root": {root: true}} {
		var b strings.Builder
		r.printNext(&b)
		fits(t, b.String())
		for _, want := range map[string][]string{
			"go run": {"go install ./cmd/...", "exn-run --loopback", "exn-tun doctor"},
			"user":   {"exn-run --loopback", "exn-tun demo --shell", "exn-tun doctor"},
			"root":   {"exn-run --loopback", "exn-tun up", "exn-tun agent"},
		}[name] {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in:\n%s", name, want, b.String())
			}
		}
	}
}

// What failed, and what is missing, is on the screen, too.
func TestScreenOfFailure(t *testing.T) {
	r := sampleReport()
	r.NoRedis = "redis-server is not installed"
	r.Figures = r.Figures[:2]
	r.addCheck("stream, IPv4", errors.New("over direct sockets: no result within 5.3s"), "")
	r.addCheck("reach, IPv6", errors.New("node 2: 0 of 2 answers"), "")
	r.Checks[len(r.Checks)-1].basic = true
	r.setOK()
	var b strings.Builder
	r.printScreen(&b)
	fits(t, b.String())
	golden(t, "screen_failed.txt", b.String())
}

// The name of a file, which a check says, does nothing to a terminal.
func TestTableOfAnyName(t *testing.T) {
	r := sampleReport()
	r.addCheck("capture", nil, "8 frames of all nodes in a\x1b[31m\nok.pcapng")
	var b strings.Builder
	r.printTable(&b)
	if got := b.String(); !strings.Contains(got, `8 frames of all nodes in a\x1b[31m\nok.pcapng`) {
		t.Errorf("%q", got)
	}
}

// With faults there is a line about the links.
func TestTableOfFaults(t *testing.T) {
	r := sampleReport()
	r.Setup.Faults = new("drop=0.01,corrupt=0.001,duplicate=0.0005,reorder=0.0005,delay=100µs,jitter=1ms,seed=18446744073709551615")
	for i := range r.Nodes {
		r.Nodes[i].Counters = append(r.Nodes[i].Counters, counter.Value{Name: "wire.node7.packets", Value: 448112}, counter.Value{Name: "wire.node7.downs", Value: 1})
	}
	var b strings.Builder
	r.printTable(&b)
	fits(t, b.String())
	for _, want := range []string{"\nlinks with faults: drop=0.01", "links: 896224 packets, 0 of them again", "2 times down\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestTableOfFailure(t *testing.T) {
	r := sampleReport()
	r.Setup.FastPath, r.Setup.RealTime, r.Setup.MTU, r.Setup.EagerThreshold, r.Setup.Nodes = false, false, 65535, 65549, 254
	for i := range 8 {
		r.Nodes = append(r.Nodes, r.Nodes[i%2])
	}
	r.Figures = r.Figures[:1]
	r.Figures[0].Exn.Runs = 1
	r.addCheck("stream, IPv4", errors.New("over exn0: no result within 5.3s"), "")
	r.addCheck("broadcast, IPv6", errors.Join(errors.New("node 1 did not get the datagram of node 2: i/o timeout"), errors.New("node 2 did not either, for whatever reason it may have had")), "")
	r.setOK()
	if r.OK {
		t.Error("a failed check leaves the report OK")
	}
	var b strings.Builder
	r.printTable(&b)
	fits(t, b.String())
	golden(t, "table_failed.txt", b.String())
}

// TestVerdict: it is OK only when something was checked and all went well.
func TestVerdict(t *testing.T) {
	r := newReport(demoOptions{}, lab.Pinger{})
	if r.setOK(); r.OK {
		t.Error("OK without a check")
	}
	r.addCheck("a", nil, "fine")
	if r.setOK(); !r.OK {
		t.Error("not OK, though the check passed")
	}
	r.Error = "no room"
	if r.setOK(); r.OK || r.verdictLine() != "The demonstration ended early: no room" {
		t.Errorf("with an error: OK %v, %q", r.OK, r.verdictLine())
	}
}

// TestJSON has the shape that programs rely on.
func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sampleReport().printJSON(&b); err != nil {
		t.Fatal(err)
	}
	oneLineOf(t, b.String(), `{"ok":true,`)
	var shape any
	if err := json.Unmarshal([]byte(b.String()), &shape); err != nil {
		t.Fatal(err)
	}
	pretty, err := json.MarshalIndent(shape, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", string(pretty)+"\n")
}

// TestJSONOfNothing: lists are lists and objects are objects, however early the
// end came.
func TestJSONOfNothing(t *testing.T) {
	r := newReport(demoOptions{}, lab.Pinger{})
	r.Error = "no TUN device"
	var b strings.Builder
	if err := r.printJSON(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"ok":false,"error":"no TUN device","checks":[],"figures":[],`, `"nodes":[],"data_path":{},`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
}

// both is so many frames, sent and received.
func both(n uint64) lab.Way { return lab.Way{Sent: n, Received: n} }
