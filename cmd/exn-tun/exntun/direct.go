package exntun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"

	"exnet/directsockets/broker"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// directOptions are the flags of "exn-tun direct".
type directOptions struct {
	nodeOptions
	json bool
	only bool         // a fabric was named: its nodes, and neither the agent nor exn-run's brokers
	rule *broker.Rule // nil: only ask
}

func newDirect() *cobra.Command {
	c := &cobra.Command{
		Use: "direct COMMAND [flags]", Short: "switch direct sockets off and on while programs run",
		Long: `Says which connections may be direct: to the agent of this host, to its nodes,
and to exn-run --loopback, as far as this user may. What it says holds until
they end. Programs need not be started anew.`,
		Example: `exn-tun direct off
exn-tun direct off --container web --port 6379
exn-tun direct on
exn-tun direct on --share 10
exn-tun direct show`,
		RunE: command.Choose,
	}
	add := func(sub *cobra.Command, rule *broker.Rule) {
		o := directOptions{rule: rule}
		fs := sub.Flags()
		sub.RunE = func(c *cobra.Command, _ []string) error {
			o.only = fs.Changed("fabric") || fs.Changed("dir") || o.node != nil
			return runDirect(programOf(c), o)
		}
		if rule != nil {
			directFlags(fs, rule)
		}
		fs.BoolVar(&o.json, "json", false, "one JSON array with an object for each that was told")
		o.define(fs)
		c.AddCommand(sub)
	}
	add(&cobra.Command{
		Use: "off [flags]", Short: "take connections back to TCP, and keep new ones there",
		Long: `Takes direct connections and UDP flows back to TCP and UDP, to other hosts, too,
and keeps new ones there. Nothing is lost, and no connection ends.`,
		Example: "exn-tun direct off --to 10.2.0.0/24",
		Args:    command.NoArgs,
	}, new(broker.Rule))
	add(&cobra.Command{
		Use: "on [flags]", Short: "let new connections be direct again",
		Long: `Lets new connections be direct. Those that went back to TCP stay there. Without
flags it forgets all that was said before. With --share all others stay on TCP,
of those that the other flags select.`,
		Example: "exn-tun direct on --share 10",
		Args:    command.NoArgs,
	}, &broker.Rule{Direct: true})
	add(&cobra.Command{Use: "show [flags]", Short: "show what was said", Long: "Shows which connections may be direct.", Args: command.NoArgs}, nil)
	return c
}

// directFlags defines the flags that select connections.
func directFlags(fs *pflag.FlagSet, r *broker.Rule) {
	fs.StringVar(&r.Container, "container", "", "`NAME` or ID: of the programs of this container")
	fs.Func("port", "`PORT` to servers at this port", func(s string) error {
		var port int
		if err := cli.ParseNumber(&port, s, 1, math.MaxUint16); err != nil {
			return err
		}
		r.Port = uint16(port)
		return nil
	})
	fs.Func("to", "`ADDRESS[/BITS]` to servers there", func(s string) (err error) {
		if r.To, err = prefixOf(s); err != nil {
			return fmt.Errorf("%q is no address: use one such as 10.2.0.1 or 10.2.0.0/24", s)
		}
		return nil
	})
	cli.Number(fs, &r.PID, "pid", 1, math.MaxInt32, "`PID` of this process")
	if r.Direct {
		cli.Number(fs, &r.Share, "share", 1, 100, "`PERCENT` of the connections; the others stay on TCP (100)")
	}
}

// prefixOf reads an address, or a network.
func prefixOf(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("").Prefix(a.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

func runDirect(p program, o directOptions) error {
	if err := o.resolve(); err != nil {
		return err
	}
	all, err := o.tell()
	switch {
	case err != nil:
		return err
	case o.json:
		return json.NewEncoder(p.stdout).Encode(all)
	case len(all) == 0:
		return errors.New("nobody to tell: no agent, node or exn-run --loopback of this user runs here")
	}
	for _, s := range all {
		writeSwitch(p.stdout, s, o.rule)
	}
	return nil
}

// tell tells all that are selected. A share of the connections is direct by two rules: one keeps
// all of them on TCP.
func (o directOptions) tell() ([]control.Switched, error) {
	if r := o.rule; r != nil && r.Share != 0 {
		rest := *r
		rest.Direct, rest.Share = false, 0
		if _, err := o.tellOne(&rest); err != nil {
			return nil, err
		}
	}
	return o.tellOne(o.rule)
}

func (o directOptions) tellOne(r *broker.Rule) (all []control.Switched, err error) {
	if !o.only {
		if all, err = control.SwitchDirect(r); err != nil {
			return nil, err
		}
	}
	for _, f := range o.fabrics() {
		at := o.nodeOptions
		at.dir = f.Dir
		nodes, err := askAll(at, func(c *control.Client) (control.Switched, error) {
			d, err := c.Direct(r)
			return control.Switched{Who: fmt.Sprintf("node %d of fabric %s", c.Node.Node, f.Fabric), Direct: d}, err
		})
		if err != nil && (o.only || !errors.Is(err, control.ErrNoNode)) {
			return nil, err
		}
		all = append(all, nodes...)
	}
	return all, nil
}

// fabrics are those whose nodes are told.
func (o directOptions) fabrics() []control.Fabric {
	if o.only {
		return []control.Fabric{{Fabric: o.fabric, Dir: o.dir}}
	}
	all, _ := control.Fabrics() // those that cannot be read are not this user's
	return all
}

// writeSwitch writes what one has answered to a rule, or which rules it has.
func writeSwitch(w io.Writer, s control.Switched, r *broker.Rule) {
	switch {
	case r != nil && s.Kept > 0:
		fmt.Fprintf(w, "%s: %s back on TCP; %d stay direct, as their programs run with an older library\n", s.Who, display.Count(s.Back, "connection"), s.Kept)
	case r != nil && !r.Direct:
		fmt.Fprintf(w, "%s: %s back on TCP\n", s.Who, display.Count(s.Back, "connection"))
	case r != nil:
		fmt.Fprintf(w, "%s: new connections may be direct%s\n", s.Who, ruleWords(*r))
	case len(s.Rules) == 0:
		fmt.Fprintf(w, "%s: all connections may be direct%s\n", s.Who, pick(len(s.Held) == 0, "", ", but for"))
	default:
		fmt.Fprintf(w, "%s: the last line that fits counts\n", s.Who)
		for _, r := range s.Rules {
			fmt.Fprintf(w, "  %s%s\n", pick(r.Direct, "on", "off"), ruleWords(r))
		}
	}
	if r == nil {
		for _, h := range s.Held {
			fmt.Fprintf(w, "  off%s, as long as a capture runs\n", ruleWords(h))
		}
	}
}

// ruleWords are the flags that make a rule.
func ruleWords(r broker.Rule) string {
	var b strings.Builder
	say := func(so bool, name string, value any) {
		if so {
			fmt.Fprintf(&b, " --%s %v", name, value)
		}
	}
	say(r.Container != "", "container", printable(r.Container))
	say(r.Port != 0, "port", r.Port)
	say(r.To.IsValid(), "to", r.To)
	say(r.PID != 0, "pid", r.PID)
	say(r.Share != 0, "share", r.Share)
	return b.String()
}
