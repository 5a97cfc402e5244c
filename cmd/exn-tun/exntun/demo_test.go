package exntun

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// quick makes a demonstration short. In this process it is fair besides: real-
// time priority cannot be given back.
var quick = []string{"demo", "--duration", "20ms", "--runs", "1", "--fair"}

// demoJSON is what programs read of the report.
type demoJSON struct {
	OK      bool
	Error   string
	Checks  []check
	Figures []figure
	Frames  lab.Frames
	Nodes   []struct {
		Node     int
		Addr     string
		Counters map[string]uint64
	}
	DataPath map[string]uint64 `json:"data_path"`
	Direct   directCount
	NoRedis  string `json:"no_redis"`
	Setup    setup
}

// lastLineJSON decodes the last line of what was printed.
func lastLineJSON(t *testing.T, stdout string) (d demoJSON) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &d); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	return d
}

// TestRootDemo runs the demonstration as a user does, but for its length.
func TestRootDemo(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	for _, c := range []struct {
		name  string
		flags []string
		path  string // "": as it is
	}{
		{"default", nil, ""},
		{"no fast path", []string{"--no-fast-path", "--mtu", "1500"}, ""},
		{"three nodes", []string{"--nodes", "3", "--eager-threshold", "120", "--mac-prefix", "02:00:00:01", "--velo-budget", "1", "--rma-budget", "1"}, ""},
		{"all eager", []string{"--eager-threshold", "1294", "--mtu", "1280", "--congestion", "reno"}, ""},
		{"no ping program", nil, t.TempDir()},
		{"bad links", []string{"--faults", "drop=0.01,corrupt=0.001,seed=1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			status, stdout, stderr := run(t.Context(), slices.Concat(quick, []string{"--json"}, c.flags)...)
			oneLineOf(t, stdout, `{"ok":true,`)
			d := lastLineJSON(t, stdout)
			if status != cli.ExitOK || !d.OK || d.Error != "" {
				t.Fatalf("status %d, %+v\n%s", status, d.Checks, stderr)
			}
			checkDemo(t, d)
			if builtIn := d.Setup.Ping == "built-in"; c.path != "" && !builtIn {
				t.Errorf("ping is %q", d.Setup.Ping)
			}
			for _, want := range []string{"bringing up", "measuring stream", "cleaning up"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in %q", want, stderr)
				}
			}
		})
	}
}

// checkDemo checks that a report of success has everything in it.
func checkDemo(t *testing.T, d demoJSON) {
	t.Helper()
	var names []string
	for _, c := range d.Checks {
		names = append(names, c.Name)
		if !c.OK || c.Detail == "" {
			t.Errorf("check %+v", c)
		}
	}
	for _, what := range []string{"reach", "transfer", "programs", "broadcast"} {
		for _, f := range lab.Families() {
			if name := what + ", " + f.String(); !slices.Contains(names, name) {
				t.Errorf("no check %q in %q", name, names)
			}
		}
	}
	for _, name := range []string{"stream, IPv4", "pingpong, IPv4", "direct", "frames", "cleanup"} {
		if !slices.Contains(names, name) {
			t.Errorf("no check %q in %q", name, names)
		}
	}
	if want := 2 + len(choose(d.NoRedis == "", "1", "")); len(d.Figures) != want {
		t.Errorf("%d figures, want %d (%s)", len(d.Figures), want, d.NoRedis)
	}
	if c := d.Direct; c.Bytes == 0 || c.TCPBytes > c.Bytes/100 || c.Before == 0 || c.ExnBytes == 0 {
		t.Errorf("what went direct: %+v", c)
	}
	for _, f := range d.Figures {
		if f.Exn.Median <= 0 || f.Veth.Median <= 0 || f.Direct.Median <= 0 || f.Ratio <= 0 || f.SpeedUp <= 0 || f.Exn.Runs != 1 || f.Direct.Runs != 1 || f.Unit == "" {
			t.Errorf("figure %+v", f)
		}
	}
	if d.Frames.Eager.Sent == 0 || d.Frames.Rendezvous.Sent == 0 || d.Frames.Broadcast.Sent == 0 {
		t.Errorf("frames %+v: one way was not gone", d.Frames)
	}
	if len(d.Nodes) != d.Setup.Nodes || d.DataPath["txloop.packets"] == 0 {
		t.Errorf("%d nodes of %d, data path %v", len(d.Nodes), d.Setup.Nodes, d.DataPath)
	}
	for _, n := range d.Nodes {
		for _, name := range []string{"exteth.tx_eager", "exteth.rx_eager", "napi.velo.polls", "velo.sent", "velo.received", "ipstack.netstack_rx"} {
			if n.Counters[name] == 0 {
				t.Errorf("node %d: %s is 0", n.Node, name)
			}
		}
	}
	for _, name := range []string{"wire.node1.retransmitted", "wire.node1.crc_errors"} {
		if (d.Nodes[1].Counters[name] > 0) != (d.Setup.Faults != nil) {
			t.Errorf("%s is %d", name, d.Nodes[1].Counters[name])
		}
	}
	fast := d.Nodes[0].Counters["ipstack.fast_tx"]
	if (fast > 0) != d.Setup.FastPath {
		t.Errorf("%d packets took the fast path, which was on: %v", fast, d.Setup.FastPath)
	}
}

// TestRootDemoProgram runs it as a process of its own, for people, at the
// priority that it has then.
func TestRootDemoProgram(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	cmd, stdout, stderr := programCommand("demo", "--duration", "20ms", "--runs", "1", "--stats", "--verbose")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	fits(t, stdout.String())
	for _, want := range []string{"2 nodes with exn0: MTU 65535", "2e:87:04:07:00:02", "  stream, 128 KiB writes Gbit/s", "\nAll checks passed: ", "\ncounters\n", "exteth.tx_rendezvous"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// TestRootDemoCancelled: it ends in the middle, in order.
func TestRootDemoCancelled(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	for _, at := range []string{"bringing up", "transfer, programs and broadcast over IPv4", "measuring stream", "measuring pingpong", "cleaning up"} {
		t.Run(at, func(t *testing.T) {
			leavesNothing(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stdout buffer
			stderr := buffer{text: at, onText: func() { time.AfterFunc(20*time.Millisecond, cancel) }}
			began := time.Now()
			status := Run(ctx, []string{"demo", "--duration", "50ms", "--runs", "1", "--fair", "--json"}, &stdout, &stderr)
			t.Log(time.Since(began))
			d := lastLineJSON(t, stdout.String())
			if at == "cleaning up" && status == cli.ExitOK {
				return // it was faster
			}
			if status != cli.ExitFailure || d.OK || d.Error != "interrupted" {
				t.Errorf("status %d, OK %v, error %q", status, d.OK, d.Error)
			}
			if !strings.HasSuffix(stderr.String(), "exn-tun demo: interrupted\n") {
				t.Errorf("standard error %q", stderr.String())
			}
		})
	}
}

// TestRootDemoSignal: Ctrl-C, SIGTERM and a closed terminal.
func TestRootDemoSignal(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		leavesNothing(t)
		cmd, stdout, stderr := programCommand("demo", "--duration", "1m", "--runs", "1")
		stderr.text, stderr.onText = "measuring stream", func() {
			time.AfterFunc(100*time.Millisecond, func() { cmd.Process.Signal(sig) })
		}
		_ = cmd.Run()
		if status := cmd.ProcessState.ExitCode(); status != cli.ExitFailure {
			t.Errorf("%v: %v\n%s", sig, cmd.ProcessState, stderr)
		}
		if !strings.Contains(stdout.String(), "The demonstration ended early: interrupted") {
			t.Errorf("%v: %s", sig, stdout)
		}
	}
}

// TestRootDemoBreaks: when exn0 is taken away, that is what is reported.
func TestRootDemoBreaks(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	o, err := parseDemo([]string{"--fair", "--duration", "1m"})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs buffer
	d := newDemonstration(program{&out, &errs}, o, nil)
	errs.text, errs.onText = "measuring stream", func() {
		time.AfterFunc(100*time.Millisecond, func() {
			ns := d.lab.Cluster.Namespace(1)
			if err := removeLink(ns, "exn0"); err != nil {
				t.Error(err)
			}
		})
	}
	began := time.Now()
	err = d.runInLab(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exn0 is gone") || time.Since(began) > 50*time.Second {
		t.Errorf("%v after %v, want that exn0 is gone", err, time.Since(began))
	}
	t.Log(err)
}
