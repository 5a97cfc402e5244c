package exntun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// statusOptions are the flags of "exn-tun status".
type statusOptions struct {
	nodeOptions
	json, watch, sockets, ports, verbose, all bool
	top                                       bool // of exn-tun top
	pid                                       int  // 0: all
	interval                                  time.Duration
	host                                      bool // no fabric was named: containers of the host, too
}

func newStatus() *cobra.Command {
	o := statusOptions{interval: time.Second}
	c := &cobra.Command{
		Use: "status [flags]", Short: "show nodes: addresses, peers, rates, direct sockets",
		Long: `Shows the nodes of a fabric on this host, a line each: addresses, namespace,
whether exn0 is up, how many of its peers are linked, what goes in and out over
exn0 and by direct sockets, how many of its connections are direct, and what is
wrong. Below them are the containers that exn-tun agent serves, by name and ID.

With -v it shows all of each node instead: the interface, neighbours, routes,
peers, multicast groups, the receive mode with interrupts, polls and work per
poll, thresholds, and the counters that are not 0. With --sockets it shows the
connections of programs that use direct sockets in the node's namespace, and of
those whose broker exn-run --loopback has started: how each goes and why, and
how it moves, or which end waits for which and, with --watch, for how long. With
--ports it shows the ports of the NIC that programs have opened (see
docs/ports.md).`,
		Example: `exn-tun status
exn-tun status --watch
exn-tun status --node 1 -v
exn-tun status --sockets --pid 4711
exn-tun status --ports
exn-tun status --json | jq '.[].counters."exn.tx_stalls"'
exn-tun status --sockets --json | jq '.[].connections[].mode'`,
		Args: command.NoArgs,
	}
	fs := c.Flags()
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.host = !fs.Changed("fabric") && !fs.Changed("dir") && o.node == nil
		return runStatus(c.Context(), programOf(c), o)
	}
	o.defineFlags(fs)
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "all there is to know about each node")
	fs.BoolVarP(&o.all, "all", "a", false, "with -v counters that are 0, too; with --sockets messages")
	fs.BoolVar(&o.sockets, "sockets", false, "direct sockets: how each connection goes, and why")
	fs.BoolVar(&o.ports, "ports", false, "VELO and RMA ports of programs: who has them, memory, what waits")
	cli.Number(fs, &o.pid, "pid", 1, math.MaxInt32, "`PID` with --sockets: connections of this process only")
	fs.BoolVar(&o.json, "json", false, "one JSON array with an object for each node")
	fs.BoolVar(&o.watch, "watch", false, "refresh it in place on a terminal, until q or SIGINT")
	cli.Duration(fs, &o.interval, "interval", minDuration, maxDuration, "`TIME` between two looks (1s)")
	return c
}

// checkFlags refuses flags that contradict each other, and finds the directory.
func (o *statusOptions) checkFlags() error {
	switch {
	case o.pid != 0 && !o.sockets:
		return cli.Usagef("--pid is for --sockets")
	case o.all && !o.verbose && !o.sockets:
		return cli.Usagef("--all is for --verbose and --sockets")
	case o.verbose && o.sockets:
		return cli.Usagef("use one of --verbose and --sockets")
	case o.ports && (o.verbose || o.sockets):
		return cli.Usagef("use --ports without --verbose and --sockets")
	}
	return o.nodeOptions.findDirectory()
}

func runStatus(ctx context.Context, p program, o statusOptions) error {
	if err := o.checkFlags(); err != nil {
		return err
	}
	l := &looker{o: o, wait: firstLook}
	if !o.watch {
		return l.printNodes(ctx, p.stdout)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if !o.json && hasSize(p.stdout) {
		return watchScreen(ctx, p.stdout, l)
	}
	for {
		// The whole picture in one write.
		var b bytes.Buffer
		if err := l.printNodes(ctx, &b); errors.Is(err, control.ErrNoNode) {
			fmt.Fprintln(p.stderr, cli.Text(err)) // it may come back
		} else if err != nil {
			return err
		}
		if _, err := p.stdout.Write(b.Bytes()); err != nil {
			return nil // the reader has closed the pipe
		}
		select {
		case <-time.After(o.interval):
		case <-ctx.Done():
			return nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := cli.Unwrap(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// firstLook is the time between the first two looks at the nodes, which give the rates.
const firstLook = 200 * time.Millisecond

// looker looks at nodes, and remembers their last counters for the rates.
type looker struct {
	o    statusOptions
	wait time.Duration // before the second look, at first
	last map[int]carried
	// Of the last look at moves, which was at at.
	ends  map[endKey]*connstats.Connection
	at    time.Time
	still map[endKey]time.Time
}

// carried is what a node had carried at a time, in bytes: its interface, and its programs' direct
// sockets.
type carried struct {
	at      time.Time
	in, out uint64
}

// carriedBy returns what a node has carried until now.
func carriedBy(s *control.Status) carried {
	t := carried{time.Now(), s.Interface.Stats.RxBytes, s.Interface.Stats.TxBytes}
	for _, d := range s.Shared {
		t.in += d.Received.Bytes
		t.out += d.Sent.Bytes
	}
	return t
}

// printNodes looks at the selected nodes, and writes what the flags ask for.
func (l *looker) printNodes(ctx context.Context, w io.Writer) error {
	o := l.o
	switch {
	case o.top:
		return l.printTop(ctx, w)
	case o.sockets:
		var m moves
		var err error
		if o.json {
			m.all, err = o.askSockets()
		} else {
			m, err = l.lookAtMoves(ctx)
		}
		all := m.all
		for _, s := range all {
			s.Connections = o.selectConnections(s.Connections)
		}
		if o.pid != 0 && !o.json && err == nil { // leave out nodes without connections
			all = slices.DeleteFunc(all, func(s *control.Sockets) bool { return len(s.Connections) == 0 })
			if len(all) == 0 {
				return l.reportNothing(w, noConnection(o.pid).Error())
			}
		}
		return printAll(w, all, err, o.json, func(w io.Writer, s *control.Sockets) { writeSockets(w, s, &m, o.all) })
	case o.ports:
		all, err := askAll(o.nodeOptions, (*control.Client).Ports)
		return printAll(w, all, err, o.json, writePorts)
	case o.json || o.verbose:
		all, err := askAll(o.nodeOptions, (*control.Client).Status)
		return printAll(w, all, err, o.json, func(w io.Writer, s *control.Status) { writeStatus(w, s, o.all) })
	}
	nodes, err := l.askNodes()
	if err == nil && l.wait > 0 {
		select {
		case <-time.After(l.wait):
		case <-ctx.Done():
			return errInterrupted
		}
		l.wait = 0
		nodes, err = l.askNodes()
	}
	if err != nil && (!errors.Is(err, control.ErrNoNode) || !o.host) {
		return err
	}
	writeSummary(w, nodes)
	if !o.host {
		return err
	}
	if writeContainers(w, agentSockets()) || err == nil {
		return nil
	}
	if nodes, _ := o.selectedNodes(); len(nodes) > 0 { // one is starting or ending
		return err
	}
	return o.errNobody()
}

// errNobody says that neither a node nor an agent runs.
func (o nodeOptions) errNobody() error {
	return fmt.Errorf("%w in %s, and no agent: start one with exn-tun up, or exn-tun agent", control.ErrNoNode, o.dir)
}

// reportNothing reports that there is nothing to show: as an error, or with --watch as text, since
// something may appear.
func (l *looker) reportNothing(w io.Writer, text string) error {
	if !l.o.watch {
		return errors.New(text)
	}
	fmt.Fprintln(w, text)
	return nil
}

// askSockets asks the selected nodes, and without --node also the brokers that belong to no
// node.
func (o statusOptions) askSockets() ([]*control.Sockets, error) {
	all, err := askAll(o.nodeOptions, (*control.Client).Sockets)
	if o.node != nil || err != nil && !errors.Is(err, control.ErrNoNode) {
		return all, err
	}
	others, brokerErr := control.Brokers()
	if brokerErr == nil && len(others) == 0 && err != nil {
		brokerErr = o.errNobody()
	}
	return append(all, others...), brokerErr
}

// selectConnections returns the connections that the flags select: those of the process.
func (o statusOptions) selectConnections(all []connstats.Connection) []connstats.Connection {
	chosen := []connstats.Connection{}
	for _, c := range all {
		if o.pid == 0 || c.PID == o.pid {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// askNodes asks the nodes, and works out the rates since the last look.
func (l *looker) askNodes() ([]nodeLine, error) {
	nodes, err := askAll(l.o.nodeOptions, func(c *control.Client) (n nodeLine, err error) {
		if n.Status, err = c.Status(); err != nil {
			return n, err
		}
		n.sockets, err = c.Sockets()
		return n, err
	})
	now := make(map[int]carried)
	for i := range nodes {
		n := &nodes[i]
		t := carriedBy(n.Status)
		now[n.Node] = t
		before, known := l.last[n.Node]
		if seconds := t.at.Sub(before.at).Seconds(); known && seconds > 0 && t.in >= before.in && t.out >= before.out {
			n.in, n.out = float64(t.in-before.in)*8/seconds, float64(t.out-before.out)*8/seconds
		}
	}
	l.last = now
	return nodes, err
}

// printAll prints what the nodes have answered, one after the other.
func printAll[T any](w io.Writer, all []T, err error, asJSON bool, write func(io.Writer, T)) error {
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		write(w, s)
	}
	return nil
}
