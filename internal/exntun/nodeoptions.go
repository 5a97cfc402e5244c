package exntun

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/control"
	"exnet/internal/daemon"
	"exnet/internal/exntun/lab"
	"exnet/mtu"
	"exnet/napi"
)

// parseUp reads the arguments of "exn-tun up". The error is flag.ErrHelp if they
// ask for help, and else says what is wrong with them or with the file that they
// name.
func parseUp(args []string) (daemon.Config, error) {
	var cfg daemon.Config
	// The first time to find the file, the second to win over it.
	path, err := parseUpFlags(&cfg, args)
	if err != nil || path == "" {
		return cfg, err
	}
	if cfg, err = daemon.ReadFile(path); err != nil {
		return cfg, err
	}
	_, err = parseUpFlags(&cfg, args)
	return cfg, err
}

// parseUpFlags puts what the flags say into cfg and returns the name of the file.
func parseUpFlags(cfg *daemon.Config, args []string) (path string, err error) {
	fs := flag.NewFlagSet("up", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&path, "config", "", "")
	where(fs, &cfg.Fabric, &cfg.Dir)
	fs.StringVar(&cfg.Group, "group", cfg.Group, "")
	nodeFlag(fs, &cfg.Node)
	fs.Func("topology", "", func(s string) (err error) {
		cfg.Topology, err = daemon.ParseTopology(s)
		return err
	})
	fs.StringVar(&cfg.Interface, "interface", cfg.Interface, "")
	addrs := addrFlags{to: &cfg.Addrs}
	fs.Func("addr", "", func(s string) error { return addrs.add(s, lab.V4) })
	fs.Func("addr6", "", func(s string) error { return addrs.add(s, lab.V6) })
	fs.Var(&cfg.MTU, "mtu", "")
	fs.StringVar(&cfg.NetNS, "netns", cfg.NetNS, "")
	fs.Var(&cfg.MACPrefix, "mac-prefix", "")
	number(fs, "eager-threshold", &cfg.EagerThreshold, exteth.MinEagerThreshold, int(mtu.Default.Link()))
	fs.BoolVar(&cfg.NoFastPath, "no-fast-path", cfg.NoFastPath, "")
	fs.BoolVar(&cfg.Fair, "fair", cfg.Fair, "")
	fs.Func("congestion", "", func(s string) error { return setCongestion(&cfg.Congestion, s) })
	fs.Func("faults", "", func(s string) error { return setFaults(&cfg.Faults, s) })
	fs.Func("metrics", "", func(s string) (err error) {
		cfg.Metrics, err = daemon.MetricsAddr(s)
		return err
	})
	fs.Bool("foreground", true, "")
	r := &cfg.Receive
	fs.Var(&r.Mode, "mode", "")
	number(fs, "velo-budget", &r.VELOBudget, 1, napi.MaxBudget)
	number(fs, "rma-budget", &r.RMABudget, 1, napi.MaxBudget)
	fs.Func("coalesce-usecs", "", func(s string) error {
		var us int
		err := parseNumber(&us, s, 0, int(control.MaxCoalesceUsecs))
		r.Coalesce.Delay = time.Duration(us) * time.Microsecond
		return err
	})
	number(fs, "coalesce-frames", &r.Coalesce.Frames, 0, 1<<16)
	fs.BoolVar(&r.Coalesce.Adaptive, "adaptive", r.Coalesce.Adaptive, "")
	if err := fs.Parse(args); err != nil {
		return "", err
	}
	return path, noArguments(fs)
}

// where defines the flags that say which fabric.
func where(fs *flag.FlagSet, name, dir *string) {
	fs.Func("fabric", "", func(s string) error {
		*name = s
		return emp.CheckName(s)
	})
	fs.Func("dir", "", func(s string) error {
		if s == "" {
			return errors.New("name a directory")
		}
		*dir = s
		return nil
	})
}

// dirOf returns the directory that these flags name.
func dirOf(name, dir string) (string, error) {
	cfg, err := daemon.Config{Fabric: name, Dir: dir}.WithDefaults()
	return cfg.Dir, err
}

func nodeFlag(fs *flag.FlagSet, to **fabric.NodeID) {
	fs.Func("node", "", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return fmt.Errorf("use a number from 0 to %d", daemon.MaxNode)
		}
		*to = new(fabric.NodeID(n))
		return nil
	})
}

func noArguments(fs *flag.FlagSet) error {
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// addrFlags collects addresses, in place of those that were there before.
type addrFlags struct {
	to    *[]netip.Prefix
	begun bool
}

func (a *addrFlags) add(s string, f lab.Family) error {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4() != (f == lab.V4) {
		return fmt.Errorf("use an %v address with the length of its network, such as %s", f, pick(f == lab.V4, "10.2.0.8/24", "fd00:10:2::8/64"))
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
