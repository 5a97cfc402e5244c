package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
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
	MetricsToken   string   `toml:"metrics_token"`
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

// ReadFile reads a configuration file. The error has a line for each mistake, with the file's name
// and the line. What only makes sense together is for Config.WithDefaults to check.
func ReadFile(path string) (Config, error) {
	r, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return r.config, r.joinedErrors()
}

// CheckFile reads a configuration file that no flags change, and returns what ReadFile and then
// Config.WithDefaults do.
func CheckFile(path string) (Config, error) {
	r, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	if len(r.mistakes) > 0 {
		return Config{}, r.joinedErrors()
	}
	c, err := r.config.WithDefaults()
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if of, ok := errors.AsType[*settingError](err); ok {
			r.noteMistake(of.key, err)
		} else if err != nil {
			r.noteMistake("", err)
		}
	}
	return c, r.joinedErrors()
}

func readFile(path string) (*reader, error) {
	text, err := infile.Read(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, string(text))
}

// parseFile reads the content of the file at path.
func parseFile(path, text string) (*reader, error) {
	if err := infile.CheckTOML(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var settings map[string]toml.Primitive
	meta, err := toml.Decode(text, &settings)
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, fmt.Errorf("%s:%d: %s", path, syntax.Position.Line, cli.Printable(syntax.Message))
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &reader{path: path, lines: make(map[string]int)}
	for k := range infile.TOMLKeys(text) {
		key := strings.Trim(k.Table+"."+k.Name, ".")
		if r.lines[key] == 0 {
			r.lines[key] = k.Line
		}
	}
	var f file
	r.readTable(meta, "", settings, reflect.ValueOf(&f).Elem())
	f.convertAll(r)
	return r, nil
}

// reader reads a configuration file.
type reader struct {
	path     string
	config   Config
	lines    map[string]int // of settings and tables
	mistakes []mistake
}

// mistake is what is wrong in a line.
type mistake struct {
	line int // 0: not known
	error
}

// noteMistake notes what is wrong with a setting or table.
func (r *reader) noteMistake(key string, err error) {
	line := r.lines[key]
	at := r.path
	if line > 0 {
		at = fmt.Sprintf("%s:%d", r.path, line)
	}
	r.mistakes = append(r.mistakes, mistake{line, fmt.Errorf("%s: %w", at, err)})
}

// noteWrongKey is note with an error that names the setting.
func (r *reader) noteWrongKey(key, format string, args ...any) {
	r.noteMistake(key, configError(key, "setting %s: "+format, append([]any{key}, args...)...))
}

// joinedErrors returns all mistakes in the order of their lines, or nil.
func (r *reader) joinedErrors() error {
	slices.SortStableFunc(r.mistakes, func(a, b mistake) int { return a.line - b.line })
	var errs []error
	for _, m := range r.mistakes {
		errs = append(errs, m.error)
	}
	return errors.Join(errs...)
}

// readTable stores the settings of a table in the fields of a struct.
func (r *reader) readTable(meta toml.MetaData, prefix string, settings map[string]toml.Primitive, to reflect.Value) {
	fields := make(map[string]reflect.Value)
	for i := range to.NumField() {
		fields[to.Type().Field(i).Tag.Get("toml")] = to.Field(i)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		key, field := prefix+name, fields[name]
		switch {
		case !field.IsValid():
			near := cli.Closest(name, slices.Sorted(maps.Keys(fields)))
			if near != "" {
				near = ": did you mean " + prefix + near + "?"
			}
			r.noteMistake(key, configError(key, "setting %s%v: there is no such setting%s", prefix, toml.Key{name}, near))
		case field.Kind() == reflect.Struct:
			var value any
			var inner map[string]toml.Primitive
			err := errors.Join(meta.PrimitiveDecode(settings[name], &value), meta.PrimitiveDecode(settings[name], &inner))
			if _, ok := value.(map[string]any); !ok || err != nil {
				r.noteWrongKey(key, "this is a table: write [%s] once, and its settings below it", key)
			}
			r.readTable(meta, key+".", inner, field)
		default:
			if err := meta.PrimitiveDecode(settings[name], field.Addr().Interface()); err != nil {
				r.noteWrongKey(key, "%s", valueError(err))
				field.SetZero()
			}
		}
	}
}

// mismatch is what the decoder says about a value whose type is wrong; it has no type of error for
// that.
var mismatch = regexp.MustCompile(`incompatible types: .* destination has type (\S+)$`)

// written says how a value of a type of TOML is written.
var written = map[string]string{
	"integer": "a whole number, such as 3",
	"boolean": "true or false",
	"string":  `text in quotes, such as "a"`,
	"slice":   `a list, such as ["a", "b"]`,
}

// valueError says how to write a value.
func valueError(err error) string {
	if m := mismatch.FindStringSubmatch(err.Error()); m != nil {
		return "write " + cmp.Or(written[m[1]], "a value of type "+m[1])
	}
	if e, ok := errors.AsType[toml.ParseError](err); ok { // of an UnmarshalTOML
		return cli.Printable(e.Message)
	}
	return err.Error()
}

// convertAll makes a Config of the settings.
func (f *file) convertAll(r *reader) {
	r.config = Config{
		Fabric: f.Fabric, Dir: f.Dir, Group: f.Group, Interface: f.Interface, NetNS: f.NetNS, Congestion: f.Congestion,
		Metrics:         f.Metrics,
		MetricsToken:    f.MetricsToken,
		TAP:             f.TAP,
		AdaptiveRouting: f.Adaptive,
		NoFastPath:      f.FastPath != nil && !*f.FastPath,
		Fair:            f.RealTime != nil && !*f.RealTime,
	}
	for _, convert := range []func(*reader, *Config){f.placeInFabric, f.convertHosts, f.convertAddresses, f.convertReceive, f.convertNumbers, f.setLend} {
		convert(r, &r.config)
	}
}

// placeInFabric converts the settings of the node in its fabric.
func (f *file) placeInFabric(r *reader, c *Config) {
	if f.Node != nil {
		if *f.Node < 0 || *f.Node > MaxNode {
			r.noteWrongKey("node", "use 0 to %d, or leave it out", MaxNode)
		}
		c.Node = new(fabric.NodeID(*f.Node))
	}
	if f.Topology != "" {
		t, err := ParseTopology(f.Topology)
		if err != nil {
			r.noteWrongKey("topology", "%w", err)
		}
		c.Topology = t
	}
	if f.Faults != nil {
		faults, err := wire.ParseFaults(*f.Faults)
		if err != nil {
			r.noteWrongKey("faults", "%w", err)
		}
		c.Faults = &faults
	}
}

// convertHosts converts the settings of the way to other hosts.
func (f *file) convertHosts(r *reader, c *Config) {
	c.Hosts = Hosts{Key: f.Hosts.Key, Trust: f.Hosts.Trust, Plaintext: f.Hosts.Plaintext, Link: f.Hosts.Link, Congestion: f.Hosts.Congestion}
	if err := CheckLink(f.Hosts.Link); err != nil {
		r.noteWrongKey("hosts.link", "%w", err)
	}
	for _, s := range f.Direct {
		if err := c.Direct.Set(s); err != nil {
			r.noteWrongKey("direct", "%w", err)
		}
	}
	if f.Hosts.Listen != "" {
		at, err := mesh.CheckListen(f.Hosts.Listen)
		if err != nil {
			r.noteWrongKey("hosts.listen", "%w", err)
		}
		c.Hosts.Listen = at
	}
	for _, s := range f.Hosts.Join {
		at, err := mesh.CheckJoin(s)
		if err != nil {
			r.noteWrongKey("hosts.join", "%w", err)
		}
		c.Hosts.Join = append(c.Hosts.Join, at)
	}
}

// convertAddresses converts the settings of the interface.
func (f *file) convertAddresses(r *reader, c *Config) {
	for _, s := range f.Addresses {
		a, err := netip.ParsePrefix(s)
		if err != nil {
			r.noteWrongKey("addresses", "%q is not an address with a prefix length, such as 10.2.0.8/24", s)
		}
		c.Addrs = append(c.Addrs, a)
	}
	if f.MTU != nil {
		m, err := mtu.New(int(*f.MTU))
		if err != nil {
			r.noteWrongKey("mtu", "%w", err)
		}
		c.MTU = m
	}
	if f.MACPrefix != "" {
		if err := c.MACPrefix.Set(f.MACPrefix); err != nil {
			r.noteWrongKey("mac_prefix", "%w", err)
		}
	}
}

// setLend converts the settings of the memory that is lent.
func (f *file) setLend(r *reader, c *Config) {
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
			r.noteWrongKey("lend.time", "%q: use a time such as 8h or 30m, from 1s on", f.Lend.Time)
		}
		c.Lend.Time = d
	}
}

// convertReceive converts the settings of the receive path, but for its numbers.
func (f *file) convertReceive(r *reader, c *Config) {
	if f.Receive.Mode != "" {
		if err := c.Receive.Mode.Set(f.Receive.Mode); err != nil {
			r.noteWrongKey("receive.mode", "%w", err)
		}
	}
	if d := f.Receive.CoalesceUsecs; d != nil {
		c.Receive.Coalesce.Delay = time.Duration(*d)
	}
	c.Receive.Coalesce.Frames, c.Receive.Coalesce.Adaptive = f.Receive.CoalesceFrames, f.Receive.Adaptive
}

// convertNumbers converts the settings that are counts.
func (f *file) convertNumbers(r *reader, c *Config) {
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
			r.noteWrongKey(n.key, "%d is too small; use %d or more, or leave it out", *n.val, n.low)
		}
		*n.to = *n.val
	}
}
