package exntun

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric/link/wire"
	"exnet/internal/node"
	"exnet/mtu"
	"exnet/napi"
)

// demoOptions is what the command line of "exn-tun demo" asks for.
type demoOptions struct {
	nodes      int
	mtu        mtu.Network
	macPrefix  arp.Prefix
	eager      int
	veloBudget int
	rmaBudget  int
	noFastPath bool
	fair       bool
	congestion string
	faults     *wire.Faults // nil: memory joins the nodes

	duration time.Duration
	runs     int
	json     bool
	stats    bool
	capture  string // a file

	command []string
	shell   bool
	in      int // the node whose namespace the command runs in, from 1
	serve   []string
}

// interactive reports whether the user's own programs run instead of the
// demonstration.
func (o demoOptions) interactive() bool { return o.shell || len(o.command) > 0 }

// cluster returns the configuration of the nodes.
func (o demoOptions) cluster() node.ClusterConfig {
	return node.ClusterConfig{
		Nodes: o.nodes,
		Node: node.Config{
			MTU:               o.mtu,
			MACPrefix:         o.macPrefix,
			EagerThreshold:    o.eager,
			VELOBudget:        o.veloBudget,
			RMABudget:         o.rmaBudget,
			NoFastPath:        o.noFastPath,
			CongestionControl: o.congestion,
		},
		Faults: o.faults,
	}
}

// parseDemo reads the arguments of "exn-tun demo". The error is flag.ErrHelp if
// they ask for help, and else says what is wrong with them.
func parseDemo(args []string) (demoOptions, error) {
	o := demoOptions{
		nodes:      2,
		mtu:        mtu.Default,
		macPrefix:  arp.DefaultPrefix(),
		eager:      exteth.DefaultEagerThreshold,
		veloBudget: napi.DefaultBudget,
		rmaBudget:  napi.DefaultBudget,
		congestion: "cubic",
		duration:   250 * time.Millisecond,
		runs:       3,
		in:         1,
	}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	number(fs, "nodes", &o.nodes, 2, node.MaxNodes)
	fs.Var(&o.mtu, "mtu", "")
	fs.Var(&o.macPrefix, "mac-prefix", "")
	number(fs, "eager-threshold", &o.eager, exteth.MinEagerThreshold, int(mtu.Default.Link()))
	number(fs, "velo-budget", &o.veloBudget, 1, napi.MaxBudget)
	number(fs, "rma-budget", &o.rmaBudget, 1, napi.MaxBudget)
	fs.BoolVar(&o.noFastPath, "no-fast-path", false, "")
	fs.BoolVar(&o.fair, "fair", false, "")
	fs.Func("congestion", "", func(s string) error { return setCongestion(&o.congestion, s) })
	fs.Func("faults", "", func(s string) error { return setFaults(&o.faults, s) })
	fs.Func("duration", "", func(s string) error { return setDuration(&o.duration, s) })
	number(fs, "runs", &o.runs, 1, 100)
	fs.BoolVar(&o.json, "json", false, "")
	fs.BoolVar(&o.stats, "stats", false, "")
	fs.Func("capture", "", func(s string) error {
		if s == "" || s == "-" {
			return errors.New("name a file or a named pipe (mkfifo)")
		}
		o.capture = s
		return nil
	})
	fs.BoolVar(&o.shell, "shell", false, "")
	number(fs, "in", &o.in, 1, node.MaxNodes)
	fs.Func("serve", "", func(s string) error {
		if strings.TrimSpace(s) == "" {
			return errors.New("give a command, as in --serve 'iperf3 -s'")
		}
		o.serve = append(o.serve, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.command = fs.Args()
	return o, o.check(args)
}

// check refuses what does not fit together.
func (o *demoOptions) check(args []string) error {
	dashes := len(args) > len(o.command) && args[len(args)-len(o.command)-1] == "--"
	switch {
	case len(o.command) > 0 && !dashes:
		return fmt.Errorf("unexpected argument %q: a command to run goes behind --, as in exn-tun demo -- ping %v", o.command[0], node.Addr4(1).Addr())
	case len(o.command) == 0 && dashes:
		return fmt.Errorf("no command behind --: give one, as in exn-tun demo -- ping %v", node.Addr4(1).Addr())
	case o.shell && len(o.command) > 0:
		return errors.New("--shell and a command exclude each other: leave one out")
	case o.interactive() && o.json:
		return errors.New("--json is for the demonstration, the output of a command is its own: leave one out")
	case !o.interactive() && len(o.serve) > 0:
		return errors.New("--serve needs something to run beside it: add -- COMMAND or --shell")
	case !o.interactive() && o.in != 1:
		return errors.New("--in says where a command runs: add -- COMMAND or --shell")
	case o.faults != nil && o.nodes > node.MaxFaultyNodes:
		return fmt.Errorf("--faults with %d nodes: every pair has a link of its own; use up to %d", o.nodes, node.MaxFaultyNodes)
	case o.in > o.nodes:
		return fmt.Errorf("--in %d: there are %d nodes; use 1 to %d or more --nodes", o.in, o.nodes, o.nodes)
	case o.eager > int(o.mtu.Link()):
		return fmt.Errorf("--eager-threshold %d is more than a frame has at --mtu %d: use %d to %d", o.eager, o.mtu, exteth.MinEagerThreshold, o.mtu.Link())
	}
	return nil
}

// number defines a flag that takes a whole number between low and high.
func number(fs *flag.FlagSet, name string, to *int, low, high int) {
	fs.Func(name, "", func(s string) error { return parseNumber(to, s, low, high) })
}

func parseNumber(to *int, s string, low, high int) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return fmt.Errorf("use a number from %d to %d", low, high)
	}
	*to = n
	return nil
}

const (
	minDuration = 10 * time.Millisecond
	maxDuration = time.Minute
)

func setDuration(to *time.Duration, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < minDuration || d > maxDuration {
		return fmt.Errorf("use a time from %v to %v, such as 250ms or 2s", minDuration, maxDuration)
	}
	*to = d
	return nil
}

func setFaults(to **wire.Faults, s string) error {
	f, err := wire.ParseFaults(s)
	if err != nil {
		return err
	}
	*to = &f
	return nil
}

// setCongestion refuses what cannot be the name of a congestion control: the
// kernel would cut it (TCP_CA_NAME_MAX is 16, with the final zero).
func setCongestion(to *string, s string) error {
	if s == "" || len(s) > 15 || slices.ContainsFunc([]byte(s), func(c byte) bool { return c <= ' ' || c == '/' || c > '~' }) {
		return errors.New("name one of sysctl net.ipv4.tcp_available_congestion_control")
	}
	*to = s
	return nil
}
