package exntun

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"exnet/arp"
	"exnet/cmd/exn-tun/internal/lab"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/emp/mesh"
	"exnet/fabric/link/stream"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/node/daemon"

	"github.com/spf13/pflag"
)

// upOptions are the flags of "exn-tun up".
type upOptions struct {
	cfg  daemon.Config
	file string // with the configuration; "": none

	addrs      addrFlags
	set        []assignment // the flags, in their order
	foreground bool
	detach     bool
	replace    bool
	wait       int    // peers
	log        string // file; "": none
}

// assignment is a flag of the command line with its value.
type assignment struct{ name, value string }

// noted is a flag's value that records what it was set to.
type noted struct {
	pflag.Value
	name string
	to   *[]assignment
}

// Set implements pflag.Value.
func (n noted) Set(s string) error {
	*n.to = append(*n.to, assignment{n.name, s})
	return n.Value.Set(s)
}

// newUpOptions defines the flags of "exn-tun up" and returns where parsing stores their values.
func newUpOptions(fs *pflag.FlagSet) *upOptions {
	o := new(upOptions)
	o.defineFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { f.Value = noted{f.Value, f.Name, &o.set} })
	return o
}

// daemonConfig returns the configuration. If the flags name a file, they override what it says.
func (o *upOptions) daemonConfig() (daemon.Config, error) {
	if o.file == "" {
		return o.cfg, nil
	}
	cfg, err := daemon.ReadFile(o.file)
	if err != nil {
		return cfg, err
	}
	over := &upOptions{cfg: cfg}
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	over.defineFlags(fs)
	for _, a := range o.set {
		if err := fs.Set(a.name, a.value); err != nil {
			return cfg, err
		}
	}
	return over.cfg, nil
}

func (o *upOptions) defineFlags(fs *pflag.FlagSet) {
	o.addrs.to = &o.cfg.Addrs
	cli.Group(fs, "The fabric", o.defineFabric)
	cli.Group(fs, "Nodes of other hosts", o.defineHosts)
	cli.Group(fs, "The interface", o.defineInterface)
	cli.Group(fs, "The data path", o.defineDataPath)
	cli.Group(fs, "Memory for others", o.defineLend)
	cli.Group(fs, "Others", o.defineOthers)
}

func (o *upOptions) defineFabric(fs *pflag.FlagSet) {
	cfg := &o.cfg
	fabricFlags(fs, &cfg.Fabric, &cfg.Dir)
	fs.StringVar(&cfg.Group, "group", cfg.Group, "`GROUP` users of this group may join, too")
	nodeFlag(fs, &cfg.Node, fmt.Sprintf("`ID` node ID, 0 to %d (the lowest free one)", daemon.MaxNode))
	fs.Func("topology", "`torus:4x4x4|mesh:3x2|FILE` how it is wired, the same for all nodes (each is one hop from every other)", func(s string) (err error) {
		cfg.Topology, err = daemon.ParseTopology(s)
		return err
	})
	fs.BoolVar(&cfg.AdaptiveRouting, "adaptive-routing", cfg.AdaptiveRouting, "data of RMA takes any shortest path of a torus or mesh, by the load of the links")
}

func (o *upOptions) defineHosts(fs *pflag.FlagSet) {
	h := &o.cfg.Hosts
	fs.Func("listen", fmt.Sprintf("`[ADDR]:PORT` where nodes of other hosts connect to, such as :%d; see docs/hosts.md (none)", mesh.DefaultPort), func(s string) (err error) {
		h.Listen, err = mesh.CheckListen(s)
		return err
	})
	fs.Func("join", fmt.Sprintf("`HOST[:PORT],...` any members of the fabric, to look for the others; dns:NAME has the addresses of all; default port %d", mesh.DefaultPort), func(s string) error {
		h.Join = nil
		for _, m := range strings.Split(s, ",") {
			at, err := mesh.CheckJoin(m)
			if err != nil {
				return err
			}
			h.Join = append(h.Join, at)
		}
		return nil
	})
	fs.StringVar(&h.Key, "key", h.Key, "`FILE` the node's key, as exn-tun key makes it; its certificate lies beside it and says which node this is")
	fs.StringVar(&h.Trust, "trust", h.Trust, "`FILE` whose keys are believed: authorities, pinned keys; see exn-tun key -h")
	fs.BoolVar(&h.Plaintext, "plaintext", h.Plaintext, "neither encrypt nor authenticate, on a network that is trusted or encrypted below")
	cli.Number(fs, &h.Conns, "conns", 1, stream.MaxConns, fmt.Sprintf("`N` TCP connections with each peer, 1 to %d; of two nodes, the one that reached the other decides (1)", stream.MaxConns))
	fs.Func("conns-congestion", "`NAME` TCP congestion control of these, for what this node sends (the system's; cubic in place of bbr where the round trip is below 1 ms)", func(s string) error { return setCongestion(&h.Congestion, s) })
	fs.Func("link", "`stream|ofi[:PROVIDER]` what carries the traffic between hosts: TCP or TLS, or libfabric, which does not encrypt it (stream)", func(s string) error {
		h.Link = s
		return daemon.CheckLink(s)
	})
}

func (o *upOptions) defineInterface(fs *pflag.FlagSet) {
	cfg := &o.cfg
	fs.Func("addr", "`ADDR/BITS` IPv4 address and length of its network; may be repeated", func(s string) error { return o.addrs.addAddr(s, lab.V4) })
	fs.Func("addr6", "`ADDR/BITS` IPv6 address; a link-local one is there in any case", func(s string) error { return o.addrs.addAddr(s, lab.V6) })
	fs.BoolVar(&cfg.TAP, "tap", cfg.TAP, "an Ethernet device, that can be bridged: ARP and NDP are the kernel's, netstack is bypassed; see docs/ethernet.md")
	mtuFlag(fs, &cfg.MTU)
	fs.StringVar(&cfg.NetNS, "netns", cfg.NetNS, "`NAME|PATH` namespace of ip netns, or such as /proc/PID/ns/net")
	fs.StringVar(&cfg.Interface, "interface", cfg.Interface, "`NAME` of the interface (exn0)")
	cli.Var(fs, &cfg.MACPrefix, "mac-prefix", fmt.Sprintf("`XX:XX:XX:XX` what MAC addresses begin with, the same on all nodes (%v)", arp.DefaultPrefix()))
	congestionFlag(fs, &cfg.Congestion, "`NAME` TCP congestion control over it (the system's)")
}

func (o *upOptions) defineDataPath(fs *pflag.FlagSet) {
	cfg, r := &o.cfg, &o.cfg.Receive
	command.ReceiveFlags(fs, &r.Mode, &r.Coalesce)
	budgetFlags(fs, &r.VELOBudget, &r.RMABudget)
	eagerFlag(fs, &cfg.EagerThreshold, "; longer ones go by rendezvous")
	begun := false
	fs.Func("direct", "`RULE` direct sockets of programs here that go through the fabric, to a server on this or another host: fabric, fabric:PORT[-PORT], fabric:ADDR[/BITS], or fabric:ADDR[/BITS],PORT; may be repeated. See docs/hosts.md (none)", func(s string) error {
		if !begun { // in place of the file's
			begun, cfg.Direct = true, nil
		}
		return cfg.Direct.Set(s)
	})
	fs.BoolVar(&cfg.NoFastPath, "no-fast-path", cfg.NoFastPath, "send every packet through netstack")
	fs.BoolVar(&cfg.Fair, "fair", cfg.Fair, "no real-time priority")
}

func (o *upOptions) defineLend(fs *pflag.FlagSet) {
	l := &o.cfg.Lend
	size64(fs, &l.Lend, "lend", "`SIZE` memory of this host that programs of other nodes may borrow, such as 4G; see docs/memory.md (0)")
	size64(fs, &l.PerNode, "lend-node", "`SIZE` of that, to all programs of one node (all)")
	size64(fs, &l.PerUser, "lend-user", "`SIZE` of that, to one user of one node (all)")
	cli.Duration(fs, &l.Time, "lend-time", time.Second, maxLendTime, "`TIME` a lease lasts at most (as long as its borrower lives)")
}

// maxLendTime is the longest time of leases.
const maxLendTime = 10000 * time.Hour

func (o *upOptions) defineOthers(fs *pflag.FlagSet) {
	cfg := &o.cfg
	fs.StringVar(&o.file, "config", "", "`FILE` TOML; see docs/daemon.md, and exn-tun check")
	fs.Func("metrics", "`[ADDR]:PORT` serve Prometheus metrics over HTTP at /metrics; without ADDR on 127.0.0.1 only. See docs/metrics.md (off)", func(s string) (err error) {
		cfg.Metrics, err = daemon.MetricsAddr(s)
		return err
	})
	fs.StringVar(&cfg.MetricsToken, "metrics-token", "", "`FILE` only who shows what is in it may read the metrics (Authorization: Bearer TOKEN); it may change (all may)")
	faultsFlag(fs, &cfg.Faults, "`LIST` for tests: what happens to packets that leave this node, as in drop=0.01,corrupt=0.001,seed=1; also duplicate and reorder (probabilities), delay and jitter (times). Its links then are packets in place of shared memory, and make up for the faults")
	fs.BoolVar(&o.detach, "detach", false, "go into the background once it is up; the exit status says whether it is")
	fs.BoolVar(&o.replace, "replace", false, "end the node that has the interface, if there is one, and go on with the interface: it keeps its addresses, routes and connections")
	cli.Number(fs, &o.wait, "wait", 0, daemon.MaxNode, "`N` be up only when N peers are linked; fails after 30s (0)")
	fs.StringVar(&o.log, "log-file", "", "`FILE` with --detach: messages are appended to it (none)")
	fs.BoolVar(&o.foreground, "foreground", true, "stay in the foreground (the default)")
}

// fabricFlags defines the flags that select a fabric.
func fabricFlags(fs *pflag.FlagSet, name, dir *string) {
	fs.Var((*fabricName)(name), "fabric", "`NAME` name of the fabric (lab)")
	fs.StringVar(dir, "dir", *dir, "`DIR` where its nodes meet (/run/exn/NAME; without root $XDG_RUNTIME_DIR/exn/NAME)")
}

// fabricName is the value of --fabric.
type fabricName string

// String implements pflag.Value. Completion reads it.
func (f *fabricName) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *fabricName) Set(s string) error {
	*f = fabricName(s)
	return emp.CheckName(s)
}

// Type implements pflag.Value.
func (f *fabricName) Type() string { return "string" }

// dirOf returns the directory that these flags name.
func dirOf(name, dir string) (string, error) {
	cfg, err := daemon.Config{Fabric: name, Dir: dir}.WithDefaults()
	return cfg.Dir, err
}

func nodeFlag(fs *pflag.FlagSet, to **fabric.NodeID, usage string) {
	fs.Func("node", usage, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return fmt.Errorf("use a number from 0 to %d", daemon.MaxNode)
		}
		*to = new(fabric.NodeID(n))
		return nil
	})
}

// addrFlags collects the addresses of repeated flags. The first one replaces those of the file.
type addrFlags struct {
	to    *[]netip.Prefix
	begun bool
}

func (a *addrFlags) addAddr(s string, f lab.Family) error {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4() != (f == lab.V4) {
		return fmt.Errorf("%q is not an %v address with its prefix length, such as %s", s, f, choose(f == lab.V4, "10.2.0.8/24", "fd00:10:2::8/64"))
	}
	if err := daemon.CheckAddr(p); err != nil {
		return err
	}
	if !a.begun {
		a.begun, *a.to = true, nil
	}
	*a.to = append(*a.to, p)
	return nil
}
