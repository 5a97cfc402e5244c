package daemon

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"exnet/fabric"
	"exnet/fabric/emp/mesh"
	"exnet/fabric/link/wire"
	"exnet/internal/cli"
	"exnet/internal/infile"
	"exnet/mtu"
	"exnet/napi"
)

// file is a configuration file. Settings that are left out have their defaults;
// unknown ones are errors.
type file struct {
	Fabric         string   `toml:"fabric"`
	Dir            string   `toml:"dir"`
	Group          string   `toml:"group"`
	Node           *int64   `toml:"node"`
	Topology       string   `toml:"topology"`
	Adaptive       bool     `toml:"adaptive_routing"`
	Interface      string   `toml:"interface"`
	Addresses      []string `toml:"addresses"`
	TAP            bool     `toml:"tap"`
	MTU            *size    `toml:"mtu"`
	NetNS          string   `toml:"netns"`
	MACPrefix      string   `toml:"mac_prefix"`
	EagerThreshold *size    `toml:"eager_threshold"`
	FastPath       *bool    `toml:"fast_path"`
	RealTime       *bool    `toml:"real_time"`
	Congestion     string   `toml:"congestion"`
	Direct         []string `toml:"direct"`
	Faults         *string  `toml:"faults"`
	Metrics        string   `toml:"metrics"`
	Hosts          struct {
		Listen     string   `toml:"listen"`
		Join       []string `toml:"join"`
		Key        string   `toml:"key"`
		Trust      string   `toml:"trust"`
		Plaintext  bool     `toml:"plaintext"`
		Link       string   `toml:"link"`
		Conns      *int     `toml:"conns"`
		Congestion string   `toml:"congestion"`
	} `toml:"hosts"`
	Lend struct {
		Memory *size64 `toml:"memory"`
		Node   *size64 `toml:"node"`
		User   *size64 `toml:"user"`
		Time   string  `toml:"time"`
	} `toml:"lend"`
	Receive struct {
		Mode           string  `toml:"mode"`
		VELOBudget     *int    `toml:"velo_budget"`
		RMABudget      *int    `toml:"rma_budget"`
		CoalesceUsecs  *micros `toml:"coalesce_usecs"`
		CoalesceFrames int     `toml:"coalesce_frames"`
		Adaptive       bool    `toml:"adaptive"`
	} `toml:"receive"`
}

// size is a number of bytes, as a flag has it: 9000, "64k".
type size int

// UnmarshalTOML implements toml.Unmarshaler.
func (s *size) UnmarshalTOML(v any) error {
	switch v := v.(type) {
	case int64:
		*s = size(v)
		return nil
	case string:
		n, err := cli.ParseSize(v, 0, math.MaxInt32)
		*s = size(n)
		return err
	}
	return errors.New("use a number of bytes, or text such as \"64k\"")
}

// size64 is an amount of memory, as a flag has it.
type size64 int64

// UnmarshalTOML implements toml.Unmarshaler.
func (s *size64) UnmarshalTOML(v any) error {
	n, err := cli.ParseSize(fmt.Sprint(v), 0, MaxLend)
	*s = size64(n)
	return err
}

// micros is a time, as a flag has it: a number of microseconds, or "50us".
type micros time.Duration

// UnmarshalTOML implements toml.Unmarshaler.
func (m *micros) UnmarshalTOML(v any) error {
	d, err := cli.ParseMicroseconds(fmt.Sprint(v), napi.MaxDelay)
	*m = micros(d)
	return err
}

// ReadFile reads a configuration file. The error says where it is wrong, in one
// line.
func ReadFile(path string) (Config, error) {
	text, err := infile.Read(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parse(string(text))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parse(text string) (Config, error) {
	var f file
	if err := infile.CheckTOML(text); err != nil {
		return Config{}, err
	}
	meta, err := toml.Decode(text, &f)
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		if syntax.LastKey != "" && !strings.Contains(syntax.Message, syntax.LastKey) { // an UnmarshalTOML's, say
			return Config{}, fmt.Errorf("line %d: %s: %s", syntax.Position.Line, syntax.LastKey, syntax.Message)
		}
		return Config{}, fmt.Errorf("line %d: %s", syntax.Position.Line, syntax.Message)
	}
	if err != nil {
		return Config{}, typeError(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return Config{}, fmt.Errorf("%w: there is no setting %v", ErrConfig, unknown[0])
	}
	return f.config()
}

// mismatch is what the decoder says about a value whose type is wrong; it has no type of error for
// that.
var mismatch = regexp.MustCompile(`^toml: line (\d+) \(last key "(.*?)"\): (?:type mismatch for struct|incompatible types: .* destination has type (\S+)$)`)

// typeError says what a value should be, in TOML's words.
func typeError(err error) error {
	m := mismatch.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	line, key, want := m[1], m[2], m[3]
	switch want {
	case "":
		return fmt.Errorf("line %s: %s is a table: write [%s] once, and its settings below it", line, key, key)
	case "slice":
		want = "array, such as [\"a\", \"b\"]"
	}
	return fmt.Errorf("line %s: setting %s: the value must be of type %s", line, key, want)
}

// wrong is the error of a setting.
func wrong(key, format string, args ...any) error {
	return fmt.Errorf("%w: setting %s: "+format, append([]any{ErrConfig, key}, args...)...)
}

// config converts the settings. What only makes sense together is for
// Config.WithDefaults to check.
func (f *file) config() (Config, error) {
	c := Config{
		Fabric: f.Fabric, Dir: f.Dir, Group: f.Group, Interface: f.Interface, NetNS: f.NetNS, Congestion: f.Congestion,
		Metrics:         f.Metrics,
		TAP:             f.TAP,
		AdaptiveRouting: f.Adaptive,
		NoFastPath:      f.FastPath != nil && !*f.FastPath,
		Fair:            f.RealTime != nil && !*f.RealTime,
	}
	for _, convert := range []func(*Config) error{f.place, f.hosts, f.addresses, f.receive, f.numbers, f.lend} {
		if err := convert(&c); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

// place converts the settings of the node in its fabric.
func (f *file) place(c *Config) error {
	if f.Node != nil {
		if *f.Node < 0 || *f.Node > MaxNode {
			return wrong("node", "use 0 to %d, or leave it out", MaxNode)
		}
		c.Node = new(fabric.NodeID(*f.Node))
	}
	if f.Topology != "" {
		t, err := ParseTopology(f.Topology)
		if err != nil {
			return wrong("topology", "%w", err)
		}
		c.Topology = t
	}
	if f.Faults != nil {
		faults, err := wire.ParseFaults(*f.Faults)
		if err != nil {
			return wrong("faults", "%w", err)
		}
		c.Faults = &faults
	}
	return nil
}

// hosts converts the settings of the way to other hosts.
func (f *file) hosts(c *Config) error {
	c.Hosts = Hosts{Key: f.Hosts.Key, Trust: f.Hosts.Trust, Plaintext: f.Hosts.Plaintext, Link: f.Hosts.Link, Congestion: f.Hosts.Congestion}
	if err := CheckLink(f.Hosts.Link); err != nil {
		return wrong("hosts.link", "%w", err)
	}
	for _, s := range f.Direct {
		if err := c.Direct.Set(s); err != nil {
			return wrong("direct", "%w", err)
		}
	}
	if f.Hosts.Listen != "" {
		at, err := mesh.CheckListen(f.Hosts.Listen)
		if err != nil {
			return wrong("hosts.listen", "%w", err)
		}
		c.Hosts.Listen = at
	}
	for _, s := range f.Hosts.Join {
		at, err := mesh.CheckJoin(s)
		if err != nil {
			return wrong("hosts.join", "%w", err)
		}
		c.Hosts.Join = append(c.Hosts.Join, at)
	}
	return nil
}

// addresses converts the settings of the interface.
func (f *file) addresses(c *Config) error {
	for _, s := range f.Addresses {
		a, err := netip.ParsePrefix(s)
		if err != nil {
			return wrong("addresses", "%q is not an address with a prefix length, such as 10.2.0.8/24", s)
		}
		c.Addrs = append(c.Addrs, a)
	}
	if f.MTU != nil {
		m, err := mtu.New(int(*f.MTU))
		if err != nil {
			return wrong("mtu", "%w", err)
		}
		c.MTU = m
	}
	if f.MACPrefix != "" {
		if err := c.MACPrefix.Set(f.MACPrefix); err != nil {
			return wrong("mac_prefix", "%w", err)
		}
	}
	return nil
}

// lend converts the settings of the memory that is lent.
func (f *file) lend(c *Config) error {
	for _, n := range []struct {
		val *size64
		to  *int64
	}{{f.Lend.Memory, &c.Lend.Lend}, {f.Lend.Node, &c.Lend.PerNode}, {f.Lend.User, &c.Lend.PerUser}} {
		if n.val != nil {
			*n.to = int64(*n.val)
		}
	}
	if f.Lend.Time != "" {
		d, err := time.ParseDuration(f.Lend.Time)
		if err != nil || d < time.Second {
			return wrong("lend.time", "%q: use a time such as 8h or 30m, from 1s on", f.Lend.Time)
		}
		c.Lend.Time = d
	}
	return nil
}

// receive converts the settings of the receive path, but for its numbers.
func (f *file) receive(c *Config) error {
	r := &c.Receive
	if f.Receive.Mode != "" {
		if err := r.Mode.Set(f.Receive.Mode); err != nil {
			return wrong("receive.mode", "%w", err)
		}
	}
	if d := f.Receive.CoalesceUsecs; d != nil {
		r.Coalesce.Delay = time.Duration(*d)
	}
	r.Coalesce.Frames, r.Coalesce.Adaptive = f.Receive.CoalesceFrames, f.Receive.Adaptive
	return nil
}

// numbers converts the settings that are counts.
func (f *file) numbers(c *Config) error {
	for _, n := range []struct {
		key string
		low int
		val *int
		to  *int
	}{
		{"eager_threshold", 1, (*int)(f.EagerThreshold), &c.EagerThreshold},
		{"hosts.conns", 1, f.Hosts.Conns, &c.Hosts.Conns},
		{"receive.velo_budget", 1, f.Receive.VELOBudget, &c.Receive.VELOBudget},
		{"receive.rma_budget", 1, f.Receive.RMABudget, &c.Receive.RMABudget},
	} {
		if n.val == nil {
			continue
		}
		if *n.val < n.low { // 0 would be the default
			return wrong(n.key, "%d is too small; use %d or more, or leave it out", *n.val, n.low)
		}
		*n.to = *n.val
	}
	return nil
}
