package daemon

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/link/wire"
	"exnet/fabric/topo"
	"exnet/mtu"
	"exnet/napi"
	"exnet/node/control"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// defaults of all settings but the addresses.
func defaults() Config {
	return Config{
		Fabric:         "lab",
		Interface:      "exn0",
		MTU:            mtu.Default,
		MACPrefix:      arp.DefaultPrefix(),
		EagerThreshold: exteth.DefaultEagerThreshold,
		Hosts:          Hosts{Conns: 1},
		Receive:        Receive{VELOBudget: napi.DefaultBudget, RMABudget: napi.DefaultBudget},
	}
}

// The file in the documentation has the defaults, and with its comments removed
// every setting that there is.
func TestReferenceFile(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "exn.toml")
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Addrs = prefixes("10.2.0.8/24", "fd00:10:2::8/64")
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, l := range lines {
		if rest, ok := strings.CutPrefix(l, "# "); ok && strings.Contains(rest, " = ") {
			lines[i] = rest
		}
	}
	if got, err = parsed(strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
	if got.Topology == nil || got.Topology.String() != "torus 4x4x4: 64 nodes, 192 links" || !got.Topology.Has(1) {
		t.Errorf("topology %v", got.Topology)
	}
	got.Topology = nil // compared
	want.Metrics, want.MetricsToken = ":9464", "/etc/exn/metrics.token"
	want.Hosts = Hosts{Listen: ":4791", Join: []string{"host1:4791", "192.0.2.7:4791"}, Key: "/etc/exn/node1.key", Trust: "/etc/exn/trust", Link: "ofi:tcp", Conns: 1, Congestion: "cubic"}
	if got.Direct.String() != "fabric:8080 fabric:10.2.0.0/24" {
		t.Errorf("direct %v", got.Direct)
	}
	got.Direct = nil // compared
	want.Lend = Lend{LendLimits: control.LendLimits{PerNode: 1 << 30, PerUser: 512 << 20}, Time: 8 * time.Hour}
	want.Faults = &wire.Faults{Drop: 0.01, Corrupt: 0.001, Seed: 1}
	want.Dir, want.Group, want.NetNS, want.Congestion, want.Node = "/run/exn/lab", "exn", "a", "cubic", new(fabric.NodeID(1))
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	got, err := Config{Dir: "/somewhere"}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Dir, got.Log = "/somewhere", nil
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	c, err := parsed(`
		fast_path = false
		real_time = false
		mtu = 9000
		[receive]
		mode = "busy"
		velo_budget = 16
		coalesce_usecs = 50
		coalesce_frames = 8`)
	want := Config{
		NoFastPath: true, Fair: true, MTU: 9000,
		Receive: Receive{Mode: napi.ModeBusyPoll, VELOBudget: 16, Coalesce: napi.Coalesce{Frames: 8, Delay: 50 * time.Microsecond}},
	}
	if diff := cmp.Diff(want, c, compare); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// parsed is what the content of a file x.toml becomes.
func parsed(text string) (Config, error) {
	r, err := parseFile("x.toml", text)
	if err != nil {
		return Config{}, err
	}
	return r.config, r.joinedErrors()
}

// Every mistake has a line, in the order of the file; those of settings together come when there
// are no others.
func TestFileMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.toml")
	for _, c := range []struct{ text, want string }{
		{"mtu = 1\nfabirc = \"lab\"\n[receive]\nmode = 3\ncoalesce_frames = true\n[hosts]\nconns = 0\n", "1: mtu: |2: fabirc: there is no such setting: did you mean fabric?|4: receive.mode: |5: receive.coalesce_frames: |7: hosts.conns: 0 is too small"},
		{"metrics_token = \"/t\"\n", "1: metrics_token also needs metrics, for example :9464"},
		{"fabric = \"a/b\"\ninterface = \"a/b\"\naddresses = [\"10.2.0.0/24\", \"127.0.0.1/8\"]\nmetrics = \"9\"\n[hosts]\nkey = \"k\"\n", "1: fabric name|2: interface|3: address 10.2.0.0/24|3: address 127.0.0.1/8|5: key also needs listen"},
		{"metrics = \"9\"\n", "1: metrics: \"9\": use :PORT"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := CheckFile(file)
		if err == nil {
			t.Errorf("%q is good", c.text)
			continue
		}
		got, want := strings.Split(err.Error(), "\n"), strings.Split(c.want, "|")
		if len(got) != len(want) {
			t.Errorf("%d mistakes, want %d:\n%v", len(got), len(want), err)
			continue
		}
		for i, line := range got {
			line = strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(line, file), ":"), "invalid configuration: ", "")
			line = strings.ReplaceAll(strings.ReplaceAll(line, "setting ", ""), "emp: ", "")
			if !strings.HasPrefix(strings.TrimSpace(line), strings.TrimPrefix(want[i], ": ")) {
				t.Errorf("got %q, want %q", line, want[i])
			}
		}
	}
}

// Sizes and times are written as flags have them, too.
func TestFileUnits(t *testing.T) {
	c, err := parsed("mtu = \"9k\"\neager_threshold = \"1KiB\"\n[receive]\ncoalesce_usecs = \"1ms\"")
	if err != nil || c.MTU != 9<<10 || c.EagerThreshold != 1<<10 || c.Receive.Coalesce.Delay != time.Millisecond {
		t.Errorf("got %v, %+v", err, c)
	}
}

func TestFileRefused(t *testing.T) {
	for text, want := range map[string]string{
		`fabric`:                              "x.toml:1: ",
		"mtu = 9000\nmtu = 1500":              "x.toml:2: ",
		`faults = "drop=2"`:                   "faults: wire: invalid configuration: drop=2; use a probability",
		`direct = ["shm"]`:                    "direct: \"shm\": use fabric",
		`faults = ""`:                         "use name=value",
		`fabric = 1`:                          "x.toml:1: invalid configuration: setting fabric: write text in quotes, such as \"a\"",
		`tap = 1`:                             "x.toml:1: invalid configuration: setting tap: write true or false",
		`addresses = 7`:                       "x.toml:1: invalid configuration: setting addresses: write a list, such as [",
		"node = 1\n[[hosts]]\nlisten = 3":     "x.toml:2: invalid configuration: setting hosts: this is a table: write [hosts] once",
		`receive = 1`:                         "x.toml:1: invalid configuration: setting receive: this is a table: write [receive] once",
		`color = "red"`:                       "x.toml:1: invalid configuration: setting color: there is no such setting",
		"[receive]\nbudget = 3":               "x.toml:2: invalid configuration: setting receive.budget: there is no such setting",
		`node = 65536`:                        "node: use 0 to 65535",
		`node = -1`:                           "node: use 0 to 65535",
		`node = "one"`:                        "x.toml:1: invalid configuration: setting node: write a whole number, such as 3",
		`addresses = ["10.2.0.8"]`:            `"10.2.0.8" is not an address with a prefix length`,
		`mtu = 100`:                           "mtu: mtu: 100 is below 1280, the least that IPv6 allows (RFC 8200); use 1280..65535",
		`mac_prefix = "01:00:5e:00"`:          "multicast",
		`eager_threshold = 0`:                 "eager_threshold: 0 is too small",
		"[receive]\nmode = \"poll\"":          "receive.mode: napi: invalid configuration: mode \"poll\"; use napi, interrupt or busy",
		"[receive]\nvelo_budget = 0":          "receive.velo_budget: 0 is too small",
		"[receive]\ncoalesce_usecs = 2000000": "receive.coalesce_usecs: use 0 to 1000000",
		"[receive]\ncoalesce_usecs = \"2s\"":  "receive.coalesce_usecs: use 0 to 1000000",
		"[receive]\ncoalesce_usecs = 0.5":     "receive.coalesce_usecs: use 0 to 1000000",
		`mtu = "9q"`:                          `mtu: "9q" is not a size`,
		`mtu = 1e3`:                           "mtu: use a number of bytes",
		`eager_threshold = "9999g"`:           "eager_threshold: 9999g is not between",
	} {
		_, err := parsed(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if _, err := ReadFile("/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestConfigRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"fabric":     {Config{Fabric: "a/b"}, `fabric name "a/b"`},
		"interface":  {Config{Interface: "a/b"}, "interface"},
		"long":       {Config{Interface: "exn0123456789012"}, "up to 15 printable characters"},
		"escape":     {Config{Interface: "\x1b[31mred"}, `interface "\x1b[31mred"`},
		"not UTF-8":  {Config{Interface: "exn\xff"}, `interface "exn\xff"`},
		"mtu":        {Config{MTU: 100}, "use 1280..65535"},
		"MAC prefix": {Config{MACPrefix: arp.Prefix{1}}, "multicast"},
		"eager":      {Config{MTU: 1500, EagerThreshold: 1515}, "use 120 to 1514"},
		"budget":     {Config{Receive: Receive{VELOBudget: -1}}, "budget -1"},
		"coalesce":   {Config{Receive: Receive{Coalesce: napi.Coalesce{Frames: 2}}}, "without Delay"},
		"network":    {Config{Addrs: prefixes("10.2.0.0/24")}, "such as 10.2.0.1/24"},
		"broadcast":  {Config{Addrs: prefixes("10.2.0.255/24")}, "broadcast"},
		"loopback":   {Config{Addrs: prefixes("127.0.0.1/8")}, "cannot have"},
		"multicast":  {Config{Addrs: prefixes("ff02::1/64")}, "cannot have"},
		"mapped":     {Config{Addrs: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.2.0.1"), 120)}}, "plain"},
		"none":       {Config{Addrs: []netip.Prefix{{}}}, "prefix length"},
		"twice":      {Config{Addrs: prefixes("10.2.0.1/24", "10.2.0.1/16")}, "twice"},
	} {
		_, err := c.cfg.WithDefaults()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	good := prefixes("10.2.0.0/31", "10.2.0.9/32", "10.2.0.254/24", "fd00::/64", "169.254.1.1/16")
	if c, err := (Config{Dir: "/d", Addrs: good}).WithDefaults(); err != nil || !slices.Equal(c.Addrs, good) {
		t.Errorf("got %v", err)
	}
}

// A topology is the same after its way to a client.
func TestTopologyForm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab.toml")
	if err := os.WriteFile(file, []byte("name = \"a \\\"b\\\"\"\nnodes = [3, 1, 2]\nlinks = [\"3.7 1.x+\", \"2 1\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own.toml") // a grid of nodes that are not counted
	if err := os.WriteFile(own, []byte("mesh = \"2x2\"\nnodes = [9, 3, 7, 1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"": true}
	for _, s := range []string{"torus:4x4x4", "mesh:4x4x4", "torus:2", file, own} {
		want, err := ParseTopology(s)
		if err != nil {
			t.Fatal(err)
		}
		load := make([]topo.LinkLoad, len(want.Links()))
		load[0].AB.Bytes, load[len(load)-1].BA.Packets = 7, 9
		got, back, err := control.NewTopology(want, load).Build()
		if err != nil || topologyID(got) != topologyID(want) || !slices.Equal(back, load) {
			t.Errorf("%s: %v, %v, %v", s, err, got, back)
		}
		if seen[topologyID(got)] {
			t.Errorf("%s is like another", s)
		}
		seen[topologyID(got)] = true
	}
	for _, s := range []string{"", "torus:", "mesh:0x1", "ring:4"} {
		if _, err := ParseTopology(s); err == nil {
			t.Errorf("%q is good", s)
		}
	}
	if _, err := parsed("topology = \"torus:x\""); err == nil {
		t.Error("torus:x is good")
	}
}
