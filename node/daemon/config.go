package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link/wire"
	"exnet/fabric/topo"
	"exnet/internal/netns"
	"exnet/internal/rules"
	"exnet/mtu"
	"exnet/napi"
	"exnet/node/tun"
)

// ErrConfig is wrapped by the error for a configuration that cannot work; the
// message names the setting.
var ErrConfig = errors.New("invalid configuration")

// MaxNode is the highest node ID.
const MaxNode = 1<<16 - 1

// Config configures a Daemon. The zero value of a field means its default.
type Config struct {
	// Fabric is the name of the fabric. Default lab.
	Fabric string
	// Dir is the fabric's directory. Default: emp.DefaultDir.
	Dir string
	// Group may join the fabric. Default: only this user.
	Group string
	// Node is the node ID asked for. Default: the lowest free one.
	Node *fabric.NodeID
	// Topology is the wiring of the fabric, the same for all its nodes. Default: each
	// node is one hop from every other.
	Topology *topo.Topology
	// Interface is the interface's name. Default exn0.
	Interface string
	// Left is the descriptor of the interface that the node before has left (tun.Config.Left).
	// Start takes it. Default: none.
	Left *os.File
	// Addrs are its IP addresses, with the length of their networks.
	Addrs []netip.Prefix
	// TAP makes the interface an Ethernet device, past netstack.
	TAP bool
	// MTU is the largest IP packet. Default mtu.Default; with TAP tun.MaxFrameMTU.
	MTU mtu.Network
	// NetNS is the network namespace of the interface: a name of "ip netns", or a
	// path. Default: the process's own.
	NetNS string
	// MACPrefix begins the MAC addresses of the fabric. Default arp.DefaultPrefix.
	MACPrefix arp.Prefix
	// EagerThreshold is the length of the longest frame sent over VELO. Default
	// exteth.DefaultEagerThreshold.
	EagerThreshold int
	// AdaptiveRouting has the data of RMA take any shortest path of Topology, a torus or mesh.
	AdaptiveRouting bool
	// NoFastPath sends every packet through netstack.
	NoFastPath bool
	// Fair leaves the process at normal priority.
	Fair bool
	// Congestion is the TCP congestion control over the interface. Default: the
	// system's.
	Congestion string
	// Faults happen to the packets that leave this node; even if they are none, its links
	// to all peers are fabric/link/wire's. Default: shared memory, unless a peer asks.
	Faults *wire.Faults
	// Direct says which direct sockets of programs here that connect go through the fabric.
	// Default: none; those to this host share memory, and those to others are TCP.
	Direct rules.Paths
	// Metrics is the TCP address, as MetricsAddr returns it, that serves the metrics.
	// Default: none does.
	Metrics string
	// MetricsToken is a file: who asks for metrics has to show what it holds. Default: nobody.
	MetricsToken string
	// Hosts says how the node finds nodes of other hosts. Default: it does not.
	Hosts Hosts
	// Lend is the memory that the node lends. Default: none.
	Lend Lend
	// Receive says how frames are received.
	Receive Receive
	// Log gets the node's messages. Default: none.
	Log *slog.Logger
	// Dash stands before a setting's name in errors: "--" where settings are flags. Default: none.
	Dash string
}

// Receive says how frames are received.
type Receive struct {
	Mode napi.Mode
	// VELOBudget and RMABudget are what one poll may handle. Default
	// napi.DefaultBudget.
	VELOBudget, RMABudget int
	Coalesce              napi.Coalesce
}

// defaults.
const (
	defaultFabric    = "lab"
	defaultInterface = "exn0"
)

// maxInterface is the longest name of an interface (IFNAMSIZ without the final
// zero).
const maxInterface = 15

// WithDefaults returns a checked copy of c.
func (c Config) WithDefaults() (Config, error) {
	if c.Fabric == "" {
		c.Fabric = defaultFabric
	}
	if c.Interface == "" {
		c.Interface = defaultInterface
	}
	if c.MTU == 0 {
		c.MTU = mtu.Default
		if c.TAP {
			c.MTU = tun.MaxFrameMTU
		}
	}
	if c.MACPrefix == (arp.Prefix{}) {
		c.MACPrefix = arp.DefaultPrefix()
	}
	if c.EagerThreshold == 0 {
		c.EagerThreshold = min(exteth.DefaultEagerThreshold, int(c.MTU.Link()))
	}
	if c.Hosts.Conns == 0 {
		c.Hosts.Conns = 1
	}
	if c.Receive.VELOBudget == 0 {
		c.Receive.VELOBudget = napi.DefaultBudget
	}
	if c.Receive.RMABudget == 0 {
		c.Receive.RMABudget = napi.DefaultBudget
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if c.Metrics != "" {
		var err error
		if c.Metrics, err = MetricsAddr(c.Metrics); err != nil {
			return c, configError("metrics", "metrics: %w", err)
		}
	}
	dir, err := c.fabricDir()
	c.Dir = dir
	return c, err
}

// fabricDir returns the fabric's directory.
func (c Config) fabricDir() (string, error) {
	if c.Dir != "" {
		return filepath.Abs(c.Dir)
	}
	return emp.DefaultDir(c.Fabric)
}

// settingError is what is wrong with a setting, which a file has by that name.
type settingError struct {
	key string
	err error
}

func (e *settingError) Error() string { return e.err.Error() }
func (e *settingError) Unwrap() error { return e.err }

// configError returns an error that wraps ErrConfig and what else of args is an error.
func configError(key, format string, args ...any) error {
	return &settingError{key, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)}
}

// check returns a settingError for each setting that is wrong, joined.
func (c Config) check() error {
	var errs []error
	of := func(key string, err error) {
		if err != nil {
			errs = append(errs, &settingError{key, err})
		}
	}
	of("fabric", emp.CheckName(c.Fabric))
	of("node", c.checkNode())
	foreign := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune("/: %", r)
	}
	if len(c.Interface) > maxInterface || c.Interface == "." || c.Interface == ".." || strings.ContainsFunc(c.Interface, foreign) {
		errs = append(errs, configError("interface", "interface %q: use up to %d printable characters, without '/', ':', '%%' and blanks", c.Interface, maxInterface))
	}
	if _, err := mtu.New(int(c.MTU)); err != nil {
		of("mtu", err)
	} else if low, high := exteth.MinEagerThreshold, int(c.MTU.Link()); c.EagerThreshold < low || c.EagerThreshold > high {
		errs = append(errs, configError("eager_threshold", "eager threshold %d: use %d to %d, a frame at this MTU", c.EagerThreshold, low, high))
	}
	if c.TAP && c.MTU > tun.MaxFrameMTU {
		errs = append(errs, configError("mtu", "MTU %d: a TAP device has up to %d", c.MTU, tun.MaxFrameMTU))
	}
	if c.AdaptiveRouting && (c.Topology == nil || c.Topology.Kind() == topo.KindFree) {
		errs = append(errs, configError("adaptive_routing", "adaptive routing needs a topology that is a torus or a mesh"))
	}
	if c.TAP && c.NoFastPath {
		errs = append(errs, configError("fast_path", "no fast path: with a TAP device no packet goes through netstack; leave out one of both"))
	}
	of("mac_prefix", c.MACPrefix.Validate())
	errs = append(errs, c.checkAddrs()...)
	if c.Faults != nil {
		of("faults", c.Faults.Verify())
	}
	errs = append(errs, c.checkHosts())
	if c.MetricsToken != "" && c.Metrics == "" {
		name := "metrics_token"
		if c.Dash != "" {
			name = c.Dash + "metrics-token"
		}
		errs = append(errs, configError("metrics_token", "%s also needs %s, for example :9464", name, c.Dash+"metrics"))
	}
	of("lend", c.Lend.check())
	return errors.Join(append(errs, c.Receive.check()...)...)
}

func (r Receive) check() (errs []error) {
	for key, n := range map[string]int{"receive.velo_budget": r.VELOBudget, "receive.rma_budget": r.RMABudget} {
		if n < 1 || n > napi.MaxBudget {
			errs = append(errs, configError(key, "budget %d: use 1 to %d", n, napi.MaxBudget))
		}
	}
	if err := r.Coalesce.Validate(); err != nil {
		errs = append(errs, &settingError{"receive", err})
	}
	return errs
}

func (c Config) checkAddrs() (errs []error) {
	for i, a := range c.Addrs {
		if err := CheckAddr(a); err != nil {
			errs = append(errs, &settingError{"addresses", err})
		}
		for _, b := range c.Addrs[:i] {
			if a.Addr() == b.Addr() {
				errs = append(errs, configError("addresses", "address %v appears twice", a.Addr()))
			}
		}
	}
	return errs
}

// CheckAddr returns ErrConfig, wrapped, if a cannot be the address of an interface.
func CheckAddr(a netip.Prefix) error {
	addr := a.Addr()
	why := ""
	switch {
	case !a.IsValid():
		why = "give it with its prefix length, as in 10.2.0.8/24"
	case addr.Is4In6() || addr.Zone() != "":
		why = "use a plain IPv4 or IPv6 address"
	case addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback():
		why = "a node cannot have it"
	case addr.Is4() && a.Bits() < 31 && addr == a.Masked().Addr():
		why = fmt.Sprintf("it is the network itself; use another, such as %v", netip.PrefixFrom(addr.Next(), a.Bits()))
	case addr.Is4() && a.Bits() < 31 && addr == lastAddr(a):
		why = "it is the broadcast address of its network"
	default:
		return nil
	}
	return fmt.Errorf("%w: address %v: %s", ErrConfig, a, why)
}

// lastAddr returns the last address of an IPv4 network.
func lastAddr(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(a)
}

// NSPath returns the path of the namespace that the configuration names, "" for the process's own.
func (c Config) NSPath() string {
	if c.NetNS == "" || strings.Contains(c.NetNS, "/") {
		return c.NetNS
	}
	return filepath.Join("/run/netns", c.NetNS)
}

// openNS opens the namespace that the configuration names, nil for the process's
// own.
func (c Config) openNS() (*netns.NS, error) {
	path := c.NSPath()
	if path == "" {
		return nil, nil
	}
	ns, err := netns.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: make it with ip netns add, or give the path of one", err)
	}
	return ns, nil
}
