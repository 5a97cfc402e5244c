package exntun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric/link/wire"
	"exnet/internal/cli"
	"exnet/mtu"
	"exnet/napi"
	"exnet/node"

	"github.com/spf13/pflag"
)

// demoOptions are the flags and arguments of "exn-tun demo".
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
	verbose  bool
	capture  string // a file

	command []string
	shell   bool
	in      int // the node whose namespace the command runs in, from 1
	serve   []string
}

// interactive reports whether the user's own programs run instead of the
// demonstration.
func (o demoOptions) interactive() bool { return o.shell || len(o.command) > 0 }

// redisRequests is how many requests a run of redis has: on TCP about twice as long as another.
func (o demoOptions) redisRequests() int { return max(1000, int(o.duration.Seconds()*160_000)) }

// clusterConfig returns the configuration of the nodes.
func (o demoOptions) clusterConfig() node.ClusterConfig {
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

// newDemoOptions defines the flags of "exn-tun demo" and returns where parsing stores their
// values.
func newDemoOptions(fs *pflag.FlagSet) *demoOptions {
	o := &demoOptions{
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
	cli.Group(fs, "What to run", o.defineRun)
	cli.Group(fs, "The fabric", o.defineFabric)
	cli.Group(fs, "The demonstration", o.defineDemonstration)
	return o
}

func (o *demoOptions) defineRun(fs *pflag.FlagSet) {
	fs.BoolVar(&o.shell, "shell", false, "run $SHELL on node 1")
	cli.Number(fs, &o.in, "in", 1, node.MaxNodes, "`N` run it, or the command, on node N instead (1)")
	fs.Func("serve", "`COMMAND` run this beside it, on the next node, as sh -c COMMAND; starts before it and ends after it; may be repeated", func(s string) error {
		if strings.TrimSpace(s) == "" {
			return errors.New("give a command, as in --serve 'iperf3 -s'")
		}
		o.serve = append(o.serve, s)
		return nil
	})
}

func (o *demoOptions) defineFabric(fs *pflag.FlagSet) {
	cli.Number(fs, &o.nodes, "nodes", 2, node.MaxNodes, fmt.Sprintf("`N` number of nodes, 2 to %d (2)", node.MaxNodes))
	mtuFlag(fs, &o.mtu)
	eagerFlag(fs, &o.eager, "; longer ones go by rendezvous (RMA GET), and so do, at any length, TCP segments that the kernel left to be cut (GSO)")
	budgetFlags(fs, &o.veloBudget, &o.rmaBudget)
	cli.Var(fs, &o.macPrefix, "mac-prefix", fmt.Sprintf("`XX:XX:XX:XX` what MAC addresses begin with (%v)", arp.DefaultPrefix()))
	fs.BoolVar(&o.noFastPath, "no-fast-path", false, "send every packet through netstack")
	fs.BoolVar(&o.fair, "fair", false, "no real-time priority for the data path")
	congestionFlag(fs, &o.congestion, "`NAME` TCP congestion control over exn0 and veth (cubic)")
	faultsFlag(fs, &o.faults, "`LIST` bad links: what happens to their packets, in both directions, as in drop=0.01,corrupt=0.001,seed=1; also duplicate, reorder (probabilities), delay and jitter (times); all of it is recovered and counted (--stats). Up to 32 nodes. Without, memory joins the nodes")
}

func (o *demoOptions) defineDemonstration(fs *pflag.FlagSet) {
	cli.Duration(fs, &o.duration, "duration", minDuration, maxDuration, "`TIME` measured time of a run (250ms)")
	cli.Number(fs, &o.runs, "runs", 1, 100, "`N` runs of each measurement (3)")
	fs.BoolVar(&o.json, "json", false, "one JSON object instead of the table")
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "all checks, frames and figures with their spread instead of one screen")
	fs.BoolVar(&o.stats, "stats", false, "print all counters at the end, also after a command")
	capture := func(s string) error {
		if s == "-" {
			return errors.New("name a file or a named pipe (mkfifo)")
		}
		o.capture = s
		return nil
	}
	fs.FuncP("output", "o", "`FILE` write the frames of all nodes to this file or named pipe as pcapng, for tcpdump -r and Wireshark; also with a command. The fabric does not wait: frames for which FILE is too slow are left out, and counted", capture)
	fs.Func("capture", "the older name of --output", capture)
	_ = fs.MarkHidden("capture") // it fails for a flag that is not there
}

// Flags that several commands share.

func mtuFlag(fs *pflag.FlagSet, to *mtu.Network) {
	fs.Func("mtu", fmt.Sprintf("`BYTES` MTU of exn0, %d to %d (%d)", mtu.MinIPv6, mtu.Default, mtu.Default), func(s string) error {
		n, err := cli.ParseSize(s, int(mtu.MinIPv6), int(mtu.Default))
		*to = mtu.Network(n)
		return err
	})
}

func eagerFlag(fs *pflag.FlagSet, to *int, more string) {
	cli.Size(fs, to, "eager-threshold", exteth.MinEagerThreshold, int(mtu.Default.Link()),
		fmt.Sprintf("`BYTES` longest frame that goes as VELO messages, %d or more (%d)%s", exteth.MinEagerThreshold, exteth.DefaultEagerThreshold, more))
}

func budgetFlags(fs *pflag.FlagSet, velo, rma *int) {
	cli.Number(fs, velo, "velo-budget", 1, napi.MaxBudget, fmt.Sprintf("`N` VELO messages in one poll, 1 to %d (%d)", napi.MaxBudget, napi.DefaultBudget))
	cli.Number(fs, rma, "rma-budget", 1, napi.MaxBudget, fmt.Sprintf("`N` RMA notifications in one poll, 1 to %d (%d)", napi.MaxBudget, napi.DefaultBudget))
}

func congestionFlag(fs *pflag.FlagSet, to *string, usage string) {
	fs.Func("congestion", usage, func(s string) error { return setCongestion(to, s) })
}

func faultsFlag(fs *pflag.FlagSet, to **wire.Faults, usage string) {
	fs.Func("faults", usage, func(s string) error { return setFaults(to, s) })
}

// setCommand stores the command and refuses options that contradict each other. dashes says
// whether there was a --.
func (o *demoOptions) setCommand(command []string, dashes bool) error {
	o.command = command
	switch {
	case len(o.command) > 0 && !dashes:
		return fmt.Errorf("unexpected argument %q: a command to run goes after --, as in exn-tun demo -- ping %v", o.command[0], node.Addr4(1).Addr())
	case len(o.command) == 0 && dashes:
		return fmt.Errorf("no command after --: give one, as in exn-tun demo -- ping %v", node.Addr4(1).Addr())
	case o.shell && len(o.command) > 0:
		return errors.New("--shell and a command exclude each other: leave one out")
	case o.interactive() && o.json:
		return errors.New("--json is for the demonstration without a command: leave one out")
	case o.interactive() && o.verbose:
		return errors.New("--verbose is for the demonstration without a command: leave one out")
	case !o.interactive() && len(o.serve) > 0:
		return errors.New("--serve needs something to run beside it: add -- COMMAND or --shell")
	case !o.interactive() && o.in != 1:
		return errors.New("--in says where a command runs: add -- COMMAND or --shell")
	case o.faults != nil && o.nodes > node.MaxFaultyNodes:
		return fmt.Errorf("--faults with %d nodes: every pair needs its own link; use up to %d", o.nodes, node.MaxFaultyNodes)
	case o.in > o.nodes:
		return fmt.Errorf("--in %d: there are %d nodes; use 1 to %d or more --nodes", o.in, o.nodes, o.nodes)
	case o.eager > int(o.mtu.Link()):
		return fmt.Errorf("--eager-threshold %d is more than a frame has at --mtu %d: use %d to %d", o.eager, o.mtu, exteth.MinEagerThreshold, o.mtu.Link())
	}
	return nil
}

const (
	minDuration = 10 * time.Millisecond
	maxDuration = time.Minute
)

func setFaults(to **wire.Faults, s string) error {
	f, err := wire.ParseFaults(s)
	if err != nil {
		return err
	}
	*to = &f
	return nil
}

// setCongestion refuses what cannot be the name of a congestion control: the kernel would
// truncate a longer one (TCP_CA_NAME_MAX is 16, with the final zero).
func setCongestion(to *string, s string) error {
	if s == "" || len(s) > 15 || slices.ContainsFunc([]byte(s), func(c byte) bool { return c <= ' ' || c == '/' || c > '~' }) {
		return errors.New("name one of sysctl net.ipv4.tcp_available_congestion_control")
	}
	*to = s
	return nil
}
