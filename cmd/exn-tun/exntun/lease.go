package exntun

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/node/control"
	"exnet/node/daemon"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// leaseOptions are the flags of "exn-tun lease".
type leaseOptions struct {
	nodeOptions
	json  bool
	all   bool
	to    int // -1: any
	user  int // -1: any
	grant control.LendLimits
	time  time.Duration
}

// maxWithin is the longest time that a borrower can be given to return a lease.
const maxWithin = time.Hour

func init() { parts = append(parts, newLease) }

func newLease() *cobra.Command {
	c := &cobra.Command{
		Use: "lease COMMAND [flags]", Short: "memory that nodes lend: show, change, take back",
		Long: `Shows the leases of memory of the nodes of this host: what each has lent, and
what its programs have borrowed. Changes how much a node lends while it runs,
and takes leases back. See docs/memory.md.`,
		Example: `exn-tun up --lend 4G
exn-tun lease list
exn-tun lease grant 2G --node 1 --per-user 512M
exn-tun lease revoke 3 --node 1 --within 10s`,
		RunE: command.Choose,
	}
	var list, grant, revoke leaseOptions
	add := func(sub *cobra.Command, o *leaseOptions, run func(program, leaseOptions, []string) error, define func(*pflag.FlagSet)) {
		sub.RunE = func(c *cobra.Command, args []string) error {
			if err := o.findDirectory(); err != nil {
				return err
			}
			return run(programOf(c), *o, args)
		}
		define(sub.Flags())
		sub.Flags().BoolVar(&o.json, "json", false, "one JSON array with an object for each node")
		o.defineFlags(sub.Flags())
		c.AddCommand(sub)
	}
	add(&cobra.Command{Use: "list [flags]", Short: "show the leases", Long: "Shows the leases of the nodes of this host.", Args: command.NoArgs},
		&list, listLeases, func(*pflag.FlagSet) {})
	add(&cobra.Command{
		Use: "grant SIZE [flags]", Short: "lend that much",
		Long: `Has a node lend that much memory in total, from now on; 0 lends nothing more.
Leases that are there stay: revoke takes them back. Limits that are left out
are none.`, Args: command.Arguments,
	}, &grant, grantLeases, func(fs *pflag.FlagSet) {
		size64(fs, &grant.grant.PerNode, "per-node", "`SIZE` to all programs of one node (all that is lent)")
		size64(fs, &grant.grant.PerUser, "per-user", "`SIZE` to one user of one node (all that is lent)")
	})
	revoke.to, revoke.user = -1, -1
	add(&cobra.Command{
		Use: "revoke [ID] [flags]", Short: "take leases back",
		Long: `Asks the borrowers of leases to return them, and takes what was not returned in
time. What is in that memory is lost.`, Args: command.Arguments,
	}, &revoke, revokeLeases, func(fs *pflag.FlagSet) {
		fs.BoolVar(&revoke.all, "all", false, "all leases of the node's memory")
		cli.Number(fs, &revoke.to, "to", 0, daemon.MaxNode, "`NODE` those of programs of this node")
		cli.Number(fs, &revoke.user, "user", 0, math.MaxUint32, "`UID` those of this user's programs; 0: also of root in containers")
		cli.Duration(fs, &revoke.time, "within", time.Millisecond, maxWithin, fmt.Sprintf("`TIME` that borrowers have (%v)", control.RevokeTime))
	})
	return c
}

// size64 defines a flag that takes an amount of memory.
func size64(fs *pflag.FlagSet, to *int64, name, usage string) {
	fs.Func(name, usage, func(s string) error {
		n, err := cli.ParseSize(s, 0, daemon.MaxLend)
		*to = int64(n)
		return err
	})
}

func (o leaseOptions) askNodes(p program, req control.LeaseRequest, write func(io.Writer, *control.Leases)) error {
	all, err := askAll(o.nodeOptions, func(c *control.Client) (*control.Leases, error) { return c.Leases(req) })
	return printAll(p.stdout, all, err, o.json, write)
}

// needOneNode returns an error unless one node is meant.
func (o leaseOptions) needOneNode() error {
	if o.node != nil {
		return nil
	}
	nodes, err := o.selectedNodes()
	if err == nil && len(nodes) > 1 {
		err = cli.Usagef("%d nodes are up: say which one with --node", len(nodes))
	}
	return err
}

func listLeases(p program, o leaseOptions, _ []string) error {
	return o.askNodes(p, control.LeaseRequest{Want: control.LeaseList}, writeLeases)
}

func grantLeases(p program, o leaseOptions, args []string) error {
	n, err := cli.ParseSize(args[0], 0, daemon.MaxLend)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	if err := o.needOneNode(); err != nil {
		return err
	}
	o.grant.Lend = int64(n)
	return o.askNodes(p, control.LeaseRequest{Want: control.LeaseGrant, Grant: o.grant}, writeLeases)
}

func revokeLeases(p program, o leaseOptions, args []string) error {
	req := control.LeaseRequest{Want: control.LeaseRevoke, Within: o.time}
	if len(args) == 1 {
		id, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil || id == 0 {
			return cli.Usagef("%q is not a lease: exn-tun lease list shows their numbers", args[0])
		}
		req.ID = id
	}
	if o.to >= 0 {
		req.To = &o.to
	}
	if o.user >= 0 {
		req.User = new(uint32(o.user))
	}
	some := req.ID != 0 || req.To != nil || req.User != nil
	switch {
	case !some && !o.all:
		return cli.Usagef("say which leases: an ID, --to NODE, --user UID or --all")
	case some && o.all:
		return cli.Usagef("--all is all of them: leave out the rest, or --all")
	}
	if err := o.needOneNode(); err != nil {
		return err
	}
	return o.askNodes(p, req, func(w io.Writer, l *control.Leases) {
		fmt.Fprintf(w, "node %d: %d leases revoked\n", l.Node, l.Revoked)
	})
}

// writeLeases writes the leases of a node for people.
func writeLeases(w io.Writer, l *control.Leases) {
	fmt.Fprintf(w, "node %d\n", l.Node)
	writeMemory(&table{w: w}, &l.Memory)
}

// writeMemory writes what a node lends and has borrowed.
func writeMemory(t *table, s *control.Memory) {
	var sum int64
	lines := []string{"lease|bytes|to node|user|process|age|until|"}
	for _, l := range s.Lent {
		sum += l.Size
		lines = append(lines, leaseLine(l))
	}
	limits := ""
	for _, m := range []struct {
		what string
		n    int64
	}{{"node", s.PerNode}, {"user", s.PerUser}} {
		if m.n > 0 {
			limits += fmt.Sprintf(", up to %s to a %s", sizeOf(m.n), m.what)
		}
	}
	t.writeRows(fmt.Sprintf("memory lent: %s of %s%s", sizeOf(sum), sizeOf(s.Lend), limits), lines...)
	lines = []string{strings.Replace(lines[0], "to node", "of node", 1)}
	sum = 0
	for _, l := range s.Borrowed {
		sum += l.Size
		lines = append(lines, leaseLine(l))
	}
	t.writeRows("memory borrowed: "+sizeOf(sum), lines...)
}

// sizeOf writes an amount of memory.
func sizeOf(n int64) string {
	if n >= 1<<30 {
		return display.Number(float64(n)/(1<<30)) + " GiB"
	}
	return display.Size(float64(n))
}

func leaseLine(l control.Lease) string {
	until, state := "it ends", choose(l.Huge, "huge pages", "")
	if l.Until != nil {
		until = l.Until.Local().Format(time.DateTime)
	}
	if l.Revoke != nil {
		state = "revoked: " + time.Until(*l.Revoke).Round(time.Second).String() + " left"
	}
	user := strconv.FormatUint(uint64(l.UID), 10) + choose(l.Container, " (container)", "")
	return fmt.Sprintf("%d|%d|%d|%s|%s|%v|%s|%s", l.ID, l.Size, l.Node, user, choose(l.PID == 0, "?", strconv.Itoa(l.PID)), display.Age(l.Since), until, state)
}
