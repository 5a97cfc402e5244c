package exntun

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"exnet/arp"
	"exnet/directsockets/broker/connstats"
	"exnet/fabric"
	"exnet/fabric/link/wire"
	"exnet/internal/cli"
	"exnet/internal/counter"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/napi"
	"exnet/node/control"
	"exnet/node/daemon"
	"exnet/test/testlab"
)

// parseUp reads the arguments of "exn-tun up".
func parseUp(args []string) (daemon.Config, error) {
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	o := newUpOptions(fs)
	if err := fs.Parse(args); err != nil {
		return daemon.Config{}, err
	}
	return o.daemonConfig()
}

func TestParseUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "exn.toml")
	text := "fabric = \"f\"\nnode = 3\nmtu = 9000\naddresses = [\"10.9.0.1/24\"]\n[receive]\nadaptive = true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	parse := func(args string) daemon.Config {
		t.Helper()
		cfg, err := parseUp(strings.Fields(args))
		if err != nil {
			t.Error(err)
		}
		return cfg
	}
	compare := cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	}
	if diff := cmp.Diff(daemon.Config{}, parse(""), compare); diff != "" {
		t.Errorf("no flags (-want +got):\n%s", diff)
	}
	want := daemon.Config{
		Fabric: "x", Dir: "/d", Group: "g", Node: new(fabric.NodeID(7)), Interface: "exn7",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.0.8/24"), netip.MustParsePrefix("fd00::8/64")},
		MTU:   1500, NetNS: "a", MACPrefix: arp.Prefix{0x2e, 1, 2, 3}, EagerThreshold: 600, NoFastPath: true, Fair: true, Congestion: "cubic",
		Faults: &wire.Faults{Drop: 0.5, Delay: time.Millisecond}, Metrics: "127.0.0.1:9464", MetricsToken: "/t",
		Receive: daemon.Receive{
			Mode: napi.ModeBusyPoll, VELOBudget: 8, RMABudget: 9,
			Coalesce: napi.Coalesce{Frames: 4, Delay: 50 * time.Microsecond},
		},
	}
	all := "--fabric x --dir /d --group g --node 7 --interface exn7 --addr 10.2.0.8/24 --addr6 fd00::8/64 --mtu 1500 --netns a" +
		" --mac-prefix 2e:01:02:03 --eager-threshold 600 --no-fast-path --fair --congestion cubic --foreground --faults drop=0.5,delay=1ms --metrics :9464 --metrics-token /t" +
		" --mode busy --velo-budget 8 --rma-budget 9 --coalesce-usecs 50 --coalesce-frames 4"
	if diff := cmp.Diff(want, parse(all), compare); diff != "" {
		t.Errorf("all flags (-want +got):\n%s", diff)
	}
	// Flags win, wherever they are; what they do not say is the file's.
	got := parse("--mtu 1500 --addr 10.2.0.8/24 --config " + file + " --adaptive=false")
	want = daemon.Config{Fabric: "f", Node: new(fabric.NodeID(3)), MTU: 1500, Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.0.8/24")}}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("flags and file (-want +got):\n%s", diff)
	}
}

// Bad input is one line, and the status says whose fault it is.
func TestNodeCommandsBadInput(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.toml")
	alone := filepath.Join(dir, "alone.toml")
	if err := errors.Join(os.WriteFile(bad, []byte("color = 1\n"), 0o600), os.WriteFile(alone, []byte("[hosts]\nlisten = \":1\"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"up --node 65536", cli.ExitUsage, "use a number from 0 to 65535"},
		{"up --node x", cli.ExitUsage, "use a number from 0 to 65535"},
		{"up --addr 10.2.0.8", cli.ExitUsage, "such as 10.2.0.8/24"},
		{"up --addr fd00::1/64", cli.ExitUsage, "is not an IPv4 address"},
		{"up --addr6 10.2.0.8/24", cli.ExitUsage, "such as fd00:10:2::8/64"},
		{"up --addr 10.2.0.255/24", cli.ExitUsage, "broadcast address"},
		{"up --fabric a/b", cli.ExitUsage, "letters"},
		{"up --dir=", cli.ExitUsage, "--dir: it is empty"},
		{"up --mtu 9", cli.ExitUsage, "between 1280 and 65535"},
		{"up --metrics 9464", cli.ExitUsage, `--metrics: "9464": use :PORT (on 127.0.0.1) or ADDRESS:PORT, such as :9464`},
		{"up --metrics host:1", cli.ExitUsage, `--metrics: "host:1": use :PORT`},
		{"up --metrics-token /t", cli.ExitUsage, "--metrics-token also needs --metrics, for example :9464"},
		{"up --metrics :65536", cli.ExitUsage, "or ADDRESS:PORT"},
		{"up --faults drop", cli.ExitUsage, `--faults: "drop": use name=value, such as drop=0.01`},
		{"up --faults corrupt=-1", cli.ExitUsage, "use a probability from 0 to 1"},
		{"up --mode fast", cli.ExitUsage, "napi, interrupt or busy"},
		{"up --coalesce-frames 4", cli.ExitUsage, "without Delay"},
		{"up --adaptive --coalesce-usecs 4", cli.ExitUsage, "either"},
		{"up --listen 4791:x", cli.ExitUsage, "use HOST or HOST:PORT"},
		{"up --listen :0x", cli.ExitUsage, "use HOST or HOST:PORT"},
		{"up --listen :1 --join a,:2 --plaintext --node 1", cli.ExitUsage, "use HOST or HOST:PORT"},
		{"up --link ofi:tcp", cli.ExitUsage, "--link ofi:tcp also needs --listen, for example :4791"},
		{"up --link ofi:udp", cli.ExitUsage, "udp is not supported"},
		{"up --link rdma", cli.ExitUsage, "use stream, ofi or ofi:PROVIDER"},
		{"up --join a", cli.ExitUsage, "--join also needs --listen, for example :4791"},
		{"up --listen :1", cli.ExitUsage, "--listen needs --key and --trust (see exn-tun key), or --plaintext on"},
		{"up --trust ca.crt", cli.ExitUsage, "--trust also needs --listen"},
		{"up --listen :1 --plaintext", cli.ExitUsage, "--plaintext needs --node: "},
		{"up --listen :1 --plaintext --node 1 --key k", cli.ExitUsage, "--plaintext needs neither --key nor --trust"},
		{"up now", cli.ExitUsage, `unexpected argument "now"`},
		{"up --config " + dir + "/none", cli.ExitFailure, "no such file"},
		{"up --config " + bad, cli.ExitUsage, "bad.toml:1: setting color: there is no such setting"},
		{"up --config " + alone, cli.ExitUsage, "alone.toml: listen needs key and trust (see exn-tun key), or plaintext on"},
		{"direct off --pid 2000000000", cli.ExitFailure, "no process 2000000000 runs here"},
		{"check", cli.ExitUsage, "name one configuration file"},
		{"check " + bad, cli.ExitFailure, "bad.toml:1: setting color: there is no such setting"},
		{"check " + dir, cli.ExitFailure, "is a directory"},
		{"down --dir " + dir, cli.ExitFailure, "no node is up in " + dir + ": exn-tun up starts one, exn-tun fabrics lists what runs"},
		{"down --node 9 --dir " + dir, cli.ExitFailure, "node 9 is not running in " + dir + ": exn-tun fabrics lists what runs"},
		{"top --node 4 --dir " + dir, cli.ExitFailure, "exn-tun top: node 4 is not running in " + dir},
		{"attach 2000000000", cli.ExitFailure, "no process 2000000000 runs here"},
		{"explain --node 4 --dir " + dir + " 2000000000", cli.ExitFailure, "no process 2000000000 runs here"},
		{"explain --node 4 --dir " + dir + fmt.Sprint(" ", os.Getpid()), cli.ExitFailure, "node 4 is not running in " + dir},
		{"up --topology " + dir + "/none", cli.ExitUsage, "--topology: there is no file " + dir + "/none: use torus:4x4x4, mesh:3x2 or a file"},
		{"down --dir " + dir + "/none", cli.ExitFailure, "no node is up"},
		{"status --dir " + dir, cli.ExitFailure, "no node is up"},
		{"status --dir " + dir + " --node 4", cli.ExitFailure, "node 4 is not running"},
		{"status all", cli.ExitUsage, "unexpected argument"},
		{"status --pid 4", cli.ExitUsage, "--pid is for --sockets"},
		{"status --sockets --pid 0", cli.ExitUsage, "--pid: use a number from 1"},
		{"status -a", cli.ExitUsage, "--all is for --verbose and --sockets"},
		{"status -v --sockets", cli.ExitUsage, "use one of --verbose and --sockets"},
		{"fabrics lab", cli.ExitUsage, "unexpected argument"},
		{"up --wait -1", cli.ExitUsage, "--wait: use a number from 0"},
		{"set --dir " + dir, cli.ExitUsage, "say what to set"},
		{"set --dir " + dir + " mode=fast", cli.ExitUsage, "napi, interrupt or busy"},
		{"set --dir " + dir + " mode=fast adaptive=on coalesce-frames=x", cli.ExitUsage, "mode=fast: use napi, interrupt or busy; invalid setting: coalesce-frames=x: use a number of frames"},
		{"set --mode busy", cli.ExitUsage, "there is no flag --mode: settings are SETTING=VALUE, such as mode=busy: did you mean mode=VALUE?"},
		{"set --coalesce-usec=5", cli.ExitUsage, "such as mode=busy: did you mean coalesce-usecs=VALUE?"},
		{"set --recieve napi", cli.ExitUsage, "such as mode=busy: did you mean mode=VALUE?"},
		{"set --zzzzz", cli.ExitUsage, "there is no flag --zzzzz: settings are SETTING=VALUE, such as mode=busy"},
		{"set --nod 2 mode=busy", cli.ExitUsage, "there is no flag --nod: did you mean --node?"},
		{"set adaptiv=on", cli.ExitUsage, "did you mean adaptive?"},
		{"set --dir " + dir + " mode=busy", cli.ExitFailure, "no node is up"},
	} {
		status, stdout, stderr := run(t.Context(), strings.Fields(c.args)...)
		if status != c.status || stdout != "" {
			t.Errorf("%s: status %d, want %d; %s", c.args, status, c.status, stdout)
		}
		oneLineOf(t, stderr, c.want)
	}
}

// Each mistake of a configuration file is a line.
func TestConfigMistakes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("mtu = 1\nsize = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]int{"up --config": cli.ExitUsage, "check": cli.ExitFailure} {
		status, stdout, stderr := run(t.Context(), append(strings.Fields(command), bad)...)
		lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
		if status != want || stdout != "" || len(lines) != 2 || !strings.Contains(lines[0], bad+":1: setting mtu") || !strings.Contains(lines[1], bad+":2: setting size") {
			t.Errorf("%s: status %d, %q, %q", command, status, stdout, stderr)
		}
	}
}

func TestNodeHelp(t *testing.T) {
	for _, command := range []string{"up", "down", "status", "fabrics", "set", "topo", "capture", "check"} {
		status, stdout, stderr := run(t.Context(), command, "-h")
		if status != cli.ExitOK || stderr != "" || !strings.HasPrefix(stdout, "Usage: exn-tun "+command) || strings.Contains(stdout, "%!") {
			t.Errorf("%s: status %d, %q, %q", command, status, stdout, stderr)
		}
		fits(t, stdout)
	}
}

func TestCheckReference(t *testing.T) {
	status, stdout, stderr := run(t.Context(), "check", filepath.Join("..", "..", "..", "docs", "exn.toml"))
	if status != cli.ExitOK || stderr != "" || !strings.Contains(stdout, "is good") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

// As in listing 5.1.
func TestStatusText(t *testing.T) {
	now := time.Now()
	s := &control.Status{
		Fabric: "lab", Dir: "/run/exn/lab", Node: 1, PID: 1234, Since: now.Add(-62 * time.Second), RealTime: true, FastPath: true,
		Interface: control.Interface{
			Name: "exn0", Up: true, MTU: 65535, TxQueueLen: 1000, MAC: "2e:87:04:07:00:01",
			Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.0.8/24"), netip.MustParsePrefix("fe80::2c87:4ff:fe07:1/64")},
			Stats: counter.Interface{RxPackets: 22, RxBytes: 1572, TxPackets: 22, TxBytes: 5 << 30},
		},
		Neighbors: []control.Neighbor{
			{Addr: netip.MustParseAddr("10.2.0.9"), MAC: "2e:87:04:07:00:02", Node: new(2), State: "reachable"},
			{Addr: netip.MustParseAddr("10.2.0.99"), State: "incomplete"},
		},
		Routes: []control.Route{{Dst: netip.MustParsePrefix("10.2.0.0/24"), Src: new(netip.MustParseAddr("10.2.0.8"))}},
		Peers: []control.Peer{
			{Node: 2, State: "up", Hops: 1, Since: now, Links: 1, MTU: 65535, Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.0.9/24")}, Link: "shm"},
			{Node: 3, State: "up", Hops: 1, Since: now, Links: 2, MTU: 65535, Link: "stream", Endpoint: "192.0.2.3:4791", Key: "SHA256:x", RTTMicros: 87, TxRate: 3 << 20},
			{Node: 7, State: "connecting", Since: now, MTU: 1500, Error: "no memory"},
		},
		Shared: []control.Shared{{Node: 2, Total: connstats.Total{Sent: connstats.Amount{Bytes: 3 << 20, Messages: 17}, Received: connstats.Amount{Bytes: 5, Messages: 1}}}},
		Groups: []control.Group{{Addr: netip.MustParseAddr("239.1.1.1"), Group: 5, Members: []int{1, 2}}},
		Receive: control.ReceiveStatus{Mode: napi.ModeNAPI, CoalesceUsecs: 50, CoalesceFrames: 8, Units: []control.Unit{
			{Name: "velo", Budget: 64, Interrupts: 10, Coalesced: 3, Polls: 12, Frames: 30, ITR: "off", WorkPerPoll: [napi.WorkBuckets]uint64{2, 4, 6}},
			{Name: "rma", Budget: 64, ITR: "off"},
		}},
		Waits:    counter.WaitTimes{Sum: 5 * time.Millisecond, Counts: [len(counter.WaitBounds) + 1]uint64{0: 990, 3: 8, 9: 1, len(counter.WaitBounds): 1}},
		Counters: counter.List{{Name: "exn.tx_stalls", Value: 1}, {Name: "exn.tx_stops", Value: 2}, {Name: "velo.sent", Value: 3}},
	}
	s.Threshold.Eager, s.Threshold.MTU, s.Threshold.VELO, s.Threshold.RMA = 480, 65535, 120, 496
	var b strings.Builder
	writeStatus(&b, s, true)
	golden(t, "status.txt", b.String())

	// What a client reads back is the same.
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back control.Status
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back.Counters, s.Counters) || back.Interface.Stats != s.Interface.Stats {
		t.Errorf("%v: %+v", err, back)
	}
}

// upNode is exn-tun up as a process of its own.
type upNode struct {
	cmd    *exec.Cmd
	stderr *buffer
	ns     *netns.NS
	args   []string
	exited chan struct{}
}

func startUp(t *testing.T, ns *netns.NS, args ...string) *upNode {
	t.Helper()
	u := &upNode{ns: ns, args: args, exited: make(chan struct{})}
	cmd, stdout, stderr := programCommand(append([]string{"up", "--netns", ns.Path()}, args...)...)
	u.cmd, u.stderr = cmd, stderr
	ready := make(chan struct{})
	stdout.text, stdout.onText = "is up", func() { close(ready) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(u.exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(u.kill)
	select {
	case <-ready:
	case <-u.exited:
		t.Fatalf("up %v: %v: %s", args, cmd.ProcessState, stderr)
	case <-time.After(3 * time.Minute):
		t.Fatalf("up %v is not up: %s", args, stderr)
	}
	return u
}

// kill ends the process as nothing else does.
func (u *upNode) kill() {
	_ = u.cmd.Process.Kill() // fails when it has ended
	<-u.exited
}

// pings reports whether ping gets an answer.
func pings(ns *netns.NS, addr string) bool {
	return ns.Run(exec.Command("ping", "-c", "1", "-W", "1", addr)) == nil
}

// Three daemons in three namespaces: all reach each other; one is killed and comes
// back; then all are told to end, and nothing is left.
func TestRootThreeDaemons(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	addrs := []string{"10.2.0.1", "10.2.0.2", "10.2.0.3"}
	addrs6 := []string{"fd00:10:2::1", "fd00:10:2::2", "fd00:10:2::3"}
	args := func(i int) []string {
		return []string{"--dir", dir, "--addr", addrs[i] + "/24", "--addr6", addrs6[i] + "/64"}
	}
	var nodes []*upNode
	for i := range addrs {
		nodes = append(nodes, startUp(t, netnstest.New(t), args(i)...))
	}
	for i, n := range nodes {
		for j := range nodes {
			if i != j {
				eventually(t, "ping "+addrs[j], func() bool { return pings(n.ns, addrs[j]) })
				eventually(t, "ping "+addrs6[j], func() bool { return pings(n.ns, addrs6[j]) })
			}
		}
	}

	// Killed, it is forgotten within a second; restarted, it answers within two, unless
	// the machine is busy.
	nodes[1].kill()
	began := time.Now()
	eventually(t, "node 2 forgotten", func() bool {
		entries, err := filepath.Glob(filepath.Join(dir, "node-2.*"))
		return err == nil && len(entries) == 0
	})
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("forgotten after %v", d)
	}
	if !pings(nodes[0].ns, addrs[2]) {
		t.Error("the others do not reach each other")
	}
	began = time.Now()
	nodes[1] = startUp(t, nodes[1].ns, args(1)...)
	eventually(t, "ping resumes", func() bool { return pings(nodes[0].ns, addrs[1]) && pings(nodes[1].ns, addrs[2]) })
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("ping resumes after %v", d)
	}

	// One that takes an ID or address does not come up, and harms nobody.
	for _, c := range []struct{ flag, value, want string }{
		{"--node", "2", "node 2: already in use"},
		{"--addr", "10.2.0.3/24", "node 3 has 10.2.0.3"},
		{"--mac-prefix", "2e:01:02:03", "use the same MAC prefix"},
	} {
		cmd, _, stderr := programCommand("up", "--dir", dir, "--netns", nodes[0].ns.Path(), "--interface", "exn1", c.flag, c.value)
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitFailure {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
		oneLineOf(t, stderr.String(), c.want)
	}

	status, stdout, stderr := run(t.Context(), "status", "--dir", dir, "--json")
	var all []control.Status
	if err := json.Unmarshal([]byte(stdout), &all); status != cli.ExitOK || err != nil || len(all) != 3 || len(all[1].Peers) != 2 {
		t.Errorf("status: %d, %v, %s", status, err, stderr)
	}
	realTime := all[1].RealTime
	for _, mode := range []string{"busy", "napi"} { // to poll all the time is not for real time
		if status, stdout, stderr = run(t.Context(), "set", "--dir", dir, "--node", "2", "mode="+mode); status != cli.ExitOK {
			t.Errorf("set: %d, %s%s", status, stdout, stderr)
		}
		want := choose(realTime && mode == "napi", "real-time", "normal priority")
		if _, stdout, _ = run(t.Context(), "status", "--dir", dir, "--node", "2", "-v"); !strings.Contains(stdout, want) {
			t.Errorf("mode %s: not %s:\n%s", mode, want, stdout)
		}
	}
	if status, stdout, stderr = run(t.Context(), "set", "--dir", dir, "--node", "2", "mode=interrupt", "adaptive=on"); status != cli.ExitOK || stdout+stderr != "" {
		t.Errorf("set: %d, %s%s", status, stdout, stderr)
	}
	status, stdout, stderr = run(t.Context(), "status", "--dir", dir, "--sockets", "--pid", "2147483647")
	if status != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, "no process 2147483647 runs here") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	if status, stdout, stderr = run(t.Context(), "status", "--dir", dir, "--node", "2", "--verbose"); status != cli.ExitOK || !strings.Contains(stdout, "receive: mode interrupt, dynamic ITR") {
		t.Errorf("status: %d, %s%s", status, stdout, stderr)
	}

	directRules(t, dir)

	// SIGTERM ends one in order, down the others.
	if err := nodes[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-nodes[0].exited
	if status, stdout, stderr = run(t.Context(), "down", "--dir", dir); status != cli.ExitOK || stdout != "node 2 is down\nnode 3 is down\n" {
		t.Errorf("down: %d, %q, %q", status, stdout, stderr)
	}
	for i, n := range nodes {
		<-n.exited
		if code := n.cmd.ProcessState.ExitCode(); code != cli.ExitOK {
			t.Errorf("node %d: exit status %d: %s", 1+i, code, n.stderr)
		}
		if err := n.ns.Run(exec.Command("ip", "link", "show", "exn0")); err == nil {
			t.Errorf("node %d: exn0 is still there", 1+i)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
}

// down removes what killed nodes left, when no other is there to do it.
// A second node in a namespace is told of the first, whatever they have in common.
func TestRootUpTwice(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	ns := netnstest.New(t)
	startUp(t, ns, "--dir", dir, "--addr", "10.2.0.1/24")
	for _, args := range []string{"--addr 10.2.0.1/24", "--addr 10.2.0.9/24", "--node 1 --addr 10.2.0.9/24"} {
		status, _, stderr := run(t.Context(), append([]string{"up", "--netns", ns.Path(), "--dir", dir}, strings.Fields(args)...)...)
		if status != cli.ExitFailure {
			t.Errorf("%s: status %d", args, status)
		}
		oneLineOf(t, stderr, "this namespace already has node 1 of fabric lab, as exn0: end it with exn-tun down --dir "+dir+" --node 1,")
	}
	if status, _, stderr := run(t.Context(), "down", "--dir", dir); status != cli.ExitOK {
		t.Errorf("down: %d, %q", status, stderr)
	}
}

func TestRootDownAfterKill(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	startUp(t, netnstest.New(t), "--dir", dir).kill()
	status, stdout, stderr := run(t.Context(), "down", "--dir", dir)
	if status != cli.ExitOK || stdout != "node 1 was dead, its files are removed\n" {
		t.Errorf("%d, %q, %q", status, stdout, stderr)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
}

// directRules sets the rules of the nodes in a directory, shows them, reads what is shown, and
// clears them.
func directRules(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules")
	direct := func(want string, args ...string) (stdout string) {
		t.Helper()
		status, stdout, stderr := run(t.Context(), append([]string{"direct", args[0], "--dir", dir, "--node", "2"}, args[1:]...)...)
		if status != cli.ExitOK || strings.TrimPrefix(stdout, "node 2 of fabric "+dir+": ") != want {
			t.Errorf("direct %q: %d, %q, %q; want %q", args, status, stdout, stderr, want)
		}
		return stdout
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("off --port 7\n")
	direct("1 rule; 0 connections back on TCP\n", "set", file)
	write("# at first none\noff\non --to 10.2.0.0/24 --port 80 --share 25 # but these\n")
	direct("2 rules; 0 connections back on TCP\n", "set", file)
	write("off --pid 9")
	direct("3 rules; 0 connections back on TCP\n", "set", "--container", "web", file)
	all := "off\n  on --port 80 --to 10.2.0.0/24 --share 25\n  off --container web --pid 9\n"
	shown := direct("the last line that fits counts\n  "+all, "show")
	_, shown, _ = strings.Cut(shown, "\n")
	direct("2 rules; 0 connections back on TCP\n", "clear", "--container", "web")
	write(shown)
	direct("3 rules; 0 connections back on TCP\n", "set", file)
	direct("the last line that fits counts\n  "+all, "show")
	direct("0 rules; 0 connections back on TCP\n", "clear")
	direct("all connections may be direct\n", "show")
}
