package exntun

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"strings"

	"exnet/directsockets/broker"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/infile"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// directOptions are the flags of "exn-tun direct".
type directOptions struct {
	nodeOptions
	json bool
	only bool // a fabric was named: its nodes, and neither the agent nor exn-run's brokers
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
exn-tun direct on --share 10%
exn-tun direct set FILE
exn-tun direct show`,
		RunE: command.Choose,
	}
	// add adds a command. It sends the requests that its arguments stand for, one after the other.
	add := func(sub *cobra.Command, requests func(args []string) ([]control.Request, error)) {
		var o directOptions
		fs := sub.Flags()
		sub.RunE = func(c *cobra.Command, args []string) error {
			o.only = fs.Changed("fabric") || fs.Changed("dir") || o.node != nil
			all, err := requests(args)
			if err != nil {
				return err
			}
			for _, req := range all {
				if r := req.Direct; r != nil && r.PID != 0 && !processRuns(r.PID) {
					return noProcess(r.PID)
				}
			}
			return runDirect(programOf(c), o, all)
		}
		fs.BoolVar(&o.json, "json", false, "one JSON array with an object for each that was told")
		o.defineFlags(fs)
		c.AddCommand(sub)
	}
	addRule := func(sub *cobra.Command, rule *broker.Rule) {
		directFlags(sub.Flags(), rule)
		sub.Args = command.NoArgs
		add(sub, func([]string) ([]control.Request, error) { return requestsOf(rule), nil })
	}
	addRule(&cobra.Command{
		Use: "off [flags]", Short: "take connections back to TCP, and keep new ones there",
		Long: `Takes direct connections and UDP flows back to TCP and UDP, to other hosts, too,
and keeps new ones there. Nothing is lost, and no connection ends.`,
		Example: "exn-tun direct off --to 10.2.0.0/24",
	}, new(broker.Rule))
	addRule(&cobra.Command{
		Use: "on [flags]", Short: "let connections be direct again",
		Long: `Lets connections be direct, also those that went back to TCP. Without flags it
forgets all that was said before. With --share all others stay on TCP, of those
that the other flags select.`,
		Example: "exn-tun direct on --share 10%",
	}, &broker.Rule{Direct: true})
	set := &cobra.Command{
		Use: "set FILE [flags]", Short: "replace all rules by those of a file",
		Long: `Replaces all rules, or those of a container, by those of a file, which has a
line for each, as show prints them. The last line that fits a connection counts.
What is forbidden now goes back to TCP at once.`,
		Example: "exn-tun direct set rules --container web",
		Args:    command.Arguments,
	}
	clear := &cobra.Command{Use: "clear [flags]", Short: "forget all rules, or those of a container", Long: "Forgets all rules, or those of a container.", Example: "exn-tun direct clear --container web", Args: command.NoArgs}
	var container string
	for _, c := range []*cobra.Command{set, clear} {
		c.Flags().StringVar(&container, "container", "", "`NAME` or ID: the rules of this container only")
	}
	add(set, func(args []string) ([]control.Request, error) {
		rules, err := readRules(args[0], container)
		return []control.Request{{Op: control.OpRules, Rules: &control.RulesRequest{Container: container, Rules: rules}}}, err
	})
	add(clear, func([]string) ([]control.Request, error) {
		return []control.Request{{Op: control.OpRules, Rules: &control.RulesRequest{Container: container}}}, nil
	})
	add(&cobra.Command{Use: "show [flags]", Short: "show what was said", Long: "Shows which connections may be direct.", Args: command.NoArgs},
		func([]string) ([]control.Request, error) { return []control.Request{{Op: control.OpDirect}}, nil })
	return c
}

// requestsOf adds a rule. A share of the connections is direct by two rules: the first one keeps
// all of them on TCP.
func requestsOf(rule *broker.Rule) (all []control.Request) {
	if rule.Share != 0 {
		none := *rule
		none.Direct, none.Share = false, 0
		all = append(all, control.Request{Op: control.OpDirect, Direct: &none})
	}
	return append(all, control.Request{Op: control.OpDirect, Direct: rule})
}

// readRules reads a file of rules, for all containers or for one.
func readRules(name, container string) ([]broker.Rule, error) {
	text, err := infile.Read(name)
	if err != nil {
		return nil, err
	}
	return parseRules(name, string(text), container)
}

// parseRules reads the lines of a text that has a name.
func parseRules(name, text, container string) (rules []broker.Rule, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		r, err := parseRule(words)
		switch {
		case err != nil:
		case container != "" && r.Container != "" && r.Container != container:
			err = fmt.Errorf("it is about container %q", r.Container)
		default:
			r.Container = cmp.Or(r.Container, container)
			rules = append(rules, r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return rules, nil
}

// parseRule reads the words of a rule, as Rule.String writes them.
func parseRule(words []string) (r broker.Rule, err error) {
	if words[0] != "on" && words[0] != "off" {
		return r, fmt.Errorf("%q: a rule begins with on or off", words[0])
	}
	r.Direct = words[0] == "on"
	fs := pflag.NewFlagSet("rule", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	directFlags(fs, &r)
	if err := fs.Parse(words[1:]); err != nil {
		return r, err
	}
	if fs.NArg() > 0 {
		return r, fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	return r, nil
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
		fs.Func("share", "`PERCENT` of the connections; the others stay on TCP (100)", func(s string) error {
			return cli.ParseNumber(&r.Share, strings.TrimSuffix(s, "%"), 1, 100)
		})
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

// runDirect asks for one thing after the other, and says what the last answers are.
func runDirect(p program, o directOptions, requests []control.Request) error {
	if err := o.findDirectory(); err != nil {
		return err
	}
	var all []control.Switched
	for _, req := range requests {
		var err error
		if all, err = o.tellSelected(req); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return json.NewEncoder(p.stdout).Encode(all)
	case len(all) == 0:
		return errors.New("nobody to tell: no agent, node or exn-run --loopback of this user runs here: nothing is direct" + orAsRoot())
	}
	for _, s := range all {
		writeSwitch(p.stdout, s, requests[len(requests)-1])
	}
	return nil
}

// orAsRoot says to users other than root that root sees more.
func orAsRoot() string { return choose(os.Getuid() == 0, "", ", or run it as root") }

// tellSelected tells all that are selected.
func (o directOptions) tellSelected(req control.Request) (all []control.Switched, err error) {
	if !o.only {
		if all, err = control.SwitchDirect(req); err != nil {
			return nil, err
		}
	}
	for _, f := range o.toldFabrics() {
		at := o.nodeOptions
		at.dir = f.Dir
		nodes, err := askAll(at, func(c *control.Client) (control.Switched, error) {
			d, err := c.Direct(req)
			return control.Switched{Who: fmt.Sprintf("node %d of fabric %s", c.Node.Node, cmp.Or(f.Fabric, f.Dir)), Direct: d}, err
		})
		if err != nil && (o.only || !errors.Is(err, control.ErrNoNode)) {
			return nil, err
		}
		all = append(all, nodes...)
	}
	return all, nil
}

// toldFabrics are those whose nodes are told.
func (o directOptions) toldFabrics() []control.Fabric {
	if o.only {
		return []control.Fabric{{Fabric: o.fabric, Dir: o.dir}}
	}
	all, _ := control.Fabrics() // those that cannot be read are not this user's
	return all
}

// writeSwitch writes what one has answered to a request.
func writeSwitch(w io.Writer, s control.Switched, req control.Request) {
	older := ""
	if s.Kept > 0 {
		older = fmt.Sprintf("; %d stay direct, as their programs run with an older library", s.Kept)
	}
	back := display.Count(s.Back, "connection") + " back on TCP" + older
	switch {
	case req.Op == control.OpRules:
		fmt.Fprintf(w, "%s: %s; %s\n", s.Who, display.Count(len(s.Rules), "rule"), back)
	case req.Direct != nil && (!req.Direct.Direct || s.Kept > 0):
		fmt.Fprintf(w, "%s: %s\n", s.Who, back)
	case req.Direct != nil:
		fmt.Fprintf(w, "%s: new connections may be direct%s\n", s.Who, strings.TrimPrefix(ruleText(*req.Direct), "on"))
	default:
		writeRules(w, s)
	}
}

// writeRules writes the rules that one has.
func writeRules(w io.Writer, s control.Switched) {
	if len(s.Rules) == 0 {
		fmt.Fprintf(w, "%s: all connections may be direct%s\n", s.Who, choose(len(s.Held) == 0, "", ", but for"))
	} else {
		fmt.Fprintf(w, "%s: the last line that fits counts\n", s.Who)
	}
	for _, r := range s.Rules {
		fmt.Fprintf(w, "  %s\n", ruleText(r))
	}
	for _, r := range s.Held {
		fmt.Fprintf(w, "  %s # as long as a capture runs\n", ruleText(r))
	}
}

// ruleText is a rule that may be printed.
func ruleText(r broker.Rule) string {
	r.Container = printable(r.Container)
	return r.String()
}
