package exntun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/netns"
	"exnet/node/tun"

	"github.com/spf13/cobra"
)

const demoExamples = `exn-tun demo
    two nodes; some 20 seconds on two CPUs, 10 without redis
exn-tun demo --json | jq .ok
    the same as one JSON object; exit status 0 only if every check passed
exn-tun demo --serve 'iperf3 -s' -- iperf3 -c 10.2.0.2
    iperf3 over exn0: its server on node 2, its client on node 1
exn-tun demo --nodes 4 --mtu 9000 --shell
    a shell on node 1 of four; it says how to reach the others
exn-tun demo -o x.pcapng -- ping -c 3 10.2.0.2; tcpdump -r x.pcapng
    what went over the fabric
exn-tun demo -- sh -c 'ping -c 3 $EXN_PEER6 && ip -s link show $EXN_IF'
    the environment has the addresses`

const demoEnvironment = `Environment of the commands:
  EXN_NODE, EXN_NODES  number of its node, number of nodes
  EXN_IF               its interface, exn0
  EXN_ADDR, EXN_ADDR6  its own addresses
  EXN_PEER, EXN_PEER6  those of the next node
  EXN_PEERS, EXN_PEERS6
                       those of all other nodes
  EXN_BROADCAST        the broadcast address
  EXN_NS1, EXN_NS2...  the namespaces, as in nsenter --net=$EXN_NS2 ip addr`

func newDemo() *cobra.Command {
	var o *demoOptions
	c := &cobra.Command{
		Use: "demo [flags]", Short: "show what it is for, in one screen, or run programs over exn0",
		Long: `Brings up nodes with an exn0 each, in network namespaces of their own, on one
fabric in this process. It tries ping, TCP and broadcast over exn0, and measures
the same two programs three ways in turn: the kernel's TCP over veth, TCP over
exn0, and direct sockets. If redis is installed, it is measured, too. Then it
cleans up. With a command after --, or --shell, it runs that in a namespace
instead; the command's exit status is exn-tun's.`,
		Example: demoExamples,
		Annotations: map[string]string{
			command.UsageKey: "demo [flags]\ndemo [flags] -- COMMAND [ARGUMENT...]\ndemo [flags] --shell",
			command.EndKey:   demoEnvironment,
		},
		Args: func(c *cobra.Command, args []string) error {
			if err := o.setCommand(args, c.ArgsLenAtDash() == 0); err != nil {
				return cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return runDemo(c.Context(), programOf(c), *o) },
	}
	o = newDemoOptions(c.Flags())
	c.Flags().SetInterspersed(false) // check refuses a command without --
	return c
}

func runDemo(ctx context.Context, p program, o demoOptions) error {
	// Before anything else: no user namespace helps where this is missing.
	if err := tun.Supported(); err != nil {
		return p.reportStartError(o, fmt.Errorf("%w; direct sockets on loopback need none: exn-run --loopback PROGRAM", err))
	}
	if !netns.Privileged() {
		status, err := netns.ReexecInUserNS()
		if err != nil {
			return p.reportStartError(o, err)
		}
		return cli.ExitStatus(status)
	}
	rec, err := openRecording(o)
	if err != nil {
		return p.reportStartError(o, err)
	}
	if o.interactive() {
		err = runPrograms(ctx, p, o, rec)
	} else {
		err = runChecks(ctx, p, o, rec)
	}
	if closed := rec.close(); err == nil {
		err = closed
	}
	return err
}

// reportStartError returns err, which keeps the demonstration from starting. With --json it prints
// a report with the error first.
func (p program) reportStartError(o demoOptions, err error) error {
	if !o.json {
		return err
	}
	r := newReport(o, lab.Pinger{})
	r.Error = cli.Text(err)
	return errors.Join(err, r.printJSON(p.stdout))
}

// printProgress prints a progress message on standard error.
func (p program) printProgress(format string, args ...any) {
	fmt.Fprintf(p.stderr, "exn-tun demo: "+format+"\n", args...)
}

// runChecks runs the demonstration and prints its report.
func runChecks(ctx context.Context, p program, o demoOptions, rec *recording) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The first signal ends the run in order, the next one ends the program.
	context.AfterFunc(ctx, stop)

	d := newDemonstration(p, o, rec)
	err := d.runInLab(ctx)
	d.progress.clearLine()
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		d.report.Error = cli.Text(err)
	}
	d.report.setOK()
	if o.json {
		err = errors.Join(err, d.report.printJSON(p.stdout))
	} else if len(d.report.Checks) > 0 {
		if o.verbose {
			d.report.printTable(p.stdout)
		} else {
			d.report.printScreen(p.stdout)
		}
		if o.stats {
			fmt.Fprintln(p.stdout)
			printCounters(p.stdout, d.report.Nodes, d.report.DataPath)
		}
	}
	if err == nil && !d.report.OK {
		return cli.ExitStatus(cli.ExitFailure)
	}
	return err
}

// demo is a demonstration under way.
type demo struct {
	program
	o        demoOptions
	rec      *recording
	ping     lab.Pinger
	redis    *lab.Redis // nil: not here
	progress *progress
	report   *report
	lab      *lab.Lab
}

func newDemonstration(p program, o demoOptions, rec *recording) *demo {
	d := &demo{program: p, o: o, rec: rec, ping: lab.NewPinger()}
	d.report = newReport(o, d.ping)
	if r, err := lab.FindRedis(o.redisRequests()); err != nil {
		d.report.NoRedis = cli.Text(err)
	} else {
		d.redis = &r
	}
	d.progress = newProgress(p.stderr, d.planSteps())
	return d
}

// planSteps plans the demonstration. The times are those of an idle machine with two CPUs.
func (d *demo) planSteps() []step {
	steps := []step{{fmt.Sprintf("bringing up %d nodes", d.o.nodes), 500 * time.Millisecond}}
	for _, f := range lab.Families() {
		steps = append(steps, step{fmt.Sprintf("ping, transfer, programs and broadcast over %v", f), 1300 * time.Millisecond})
	}
	runs := time.Duration(3 * d.o.runs)
	for _, m := range d.o.measurements(nil) {
		steps = append(steps, step{"measuring " + m.name + " over veth, exn0 and direct in turn", runs * (d.o.duration*5/4 + 60*time.Millisecond)})
	}
	if d.redis != nil && d.redis.ExnRun == "" {
		steps = append(steps, step{"building exn-run and its library, for redis", 20 * time.Second})
	}
	if d.redis != nil {
		steps = append(steps, step{"measuring redis in the same way", runs * (d.o.duration*2 + 200*time.Millisecond)})
	}
	return append(steps, step{"cleaning up", 500 * time.Millisecond})
}

// runInLab brings up the lab, runs the checks and removes the lab.
func (d *demo) runInLab(ctx context.Context) (err error) {
	d.progress.nextStep()
	if d.lab, err = lab.New(d.o.clusterConfig(), d.o.fair); err != nil {
		return err
	}
	defer func() {
		d.progress.lastStep()
		closed := d.lab.Close()
		d.report.addCheck("cleanup", closed, "nodes, interfaces and namespaces are gone")
	}()
	if err := d.rec.startCapture(d.lab); err != nil {
		return err
	}
	defer func() {
		if detail, err := d.rec.stopCapture(); detail != "" {
			d.report.addCheck("capture", err, detail)
		}
	}()
	veth, err := d.lab.Veth(d.o.congestion)
	if err != nil {
		return err
	}
	if err := d.report.recordNodes(d.lab, veth); err != nil {
		return err
	}
	ctx, cancel := d.lab.Context(ctx)
	defer cancel()
	err = d.checkAll(ctx, veth)
	d.report.countAll(d.lab)
	return err
}

// checkAll runs the checks. It returns an error only if it cannot continue.
func (d *demo) checkAll(ctx context.Context, veth lab.Path) error {
	for _, f := range lab.Families() {
		d.progress.nextStep()
		checks := []struct {
			name string
			run  func(context.Context, lab.Family) (string, error)
		}{
			{"reach", d.pingAll},
			{"transfer", d.checkTransfer},
			{"programs", d.checkPrograms},
			{"broadcast", d.checkBroadcast},
		}
		for i, c := range checks {
			detail, err := c.run(ctx, f)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			d.report.addCheck(fmt.Sprintf("%s, %v", c.name, f), err, detail)
			d.report.Checks[len(d.report.Checks)-1].basic = true
			d.progress.setDone(float64(i+1) / float64(len(checks)))
		}
	}
	if err := d.measureAll(ctx, d.firstWays(veth)); err != nil {
		return err
	}
	detail, err := d.checkBalance(ctx)
	d.report.addCheck("frames", err, detail)
	return nil
}

// pingAll pings every other node from the first.
func (d *demo) pingAll(ctx context.Context, f lab.Family) (string, error) {
	spec := lab.PingSpec{Count: 2, Interval: 10 * time.Millisecond}
	for to := 1; to < d.o.nodes; to++ {
		p := d.lab.Exn(to)
		trips, err := d.ping.Ping(ctx, p.A.NS, p.B.Addrs[f], spec)
		if err == nil && len(trips) < spec.Count {
			err = fmt.Errorf("%d of %d answers", len(trips), spec.Count)
		}
		if err != nil {
			return "", fmt.Errorf("node %d (%v): %w", 1+to, p.B.Addrs[f], err)
		}
	}
	return fmt.Sprintf("ping (%s) from node 1 to %s", d.ping.Name, otherNodes(d.o.nodes)), nil
}

func otherNodes(nodes int) string {
	if nodes == 2 {
		return "node 2"
	}
	return fmt.Sprintf("%d others", nodes-1)
}

// checkTransfer sends data over exn0, and verifies with the fabric's counters that it went that
// way.
func (d *demo) checkTransfer(ctx context.Context, f lab.Family) (string, error) {
	before := d.bytesArrived()
	if err := lab.Transfer(ctx, d.lab.Exn(1), f, d.o.congestion, lab.TransferLen); err != nil {
		return "", err
	}
	carried := d.bytesArrived() - before
	if carried < lab.TransferLen {
		return "", fmt.Errorf("the sum is right, but only %[2]d of %[1]d bytes went over the fabric", lab.TransferLen, carried)
	}
	return fmt.Sprintf("%d MiB, SHA-256 equal; the fabric carried %.1f MiB", lab.TransferLen>>20, float64(carried)/(1<<20)), nil
}

// checkPrograms lets programs of this host exchange a file over exn0.
func (d *demo) checkPrograms(ctx context.Context, f lab.Family) (string, error) {
	names, err := lab.Programs(ctx, d.lab.Exn(1), f)
	if len(names) == 0 {
		return "skipped: this host has neither perl and bash nor python3 and curl", err
	}
	return strings.Join(names, ", ") + ": 1 MiB each, SHA-256 equal", err
}

// bytesArrived returns the bytes of all frames that arrived at node 2.
func (d *demo) bytesArrived() uint64 { return d.lab.Cluster.Nodes[1].Interface.Stats().Port.RxBytes }

func (d *demo) checkBroadcast(ctx context.Context, f lab.Family) (string, error) {
	to := lab.BroadcastAddr()
	if f == lab.V6 {
		to = lab.AllNodes
	}
	return fmt.Sprintf("each node's datagram to %v reached all others", to), lab.Broadcast(ctx, d.lab, f)
}

// checkBalance checks that every frame that left a node arrived at another. Frames
// may be under way at first: the kernel sends some of its own, and a busy machine delivers late.
func (d *demo) checkBalance(ctx context.Context) (string, error) {
	var lost string
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		if lost = d.lab.SinceStart().Lost(d.o.nodes); lost == "" {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	f := lab.FramesOf(d.lab)
	switch {
	case lost != "":
		return "", errors.New(lost)
	case f.Eager.Sent == 0:
		return "", errors.New("no frame went eagerly")
	case f.Broadcast.Sent == 0:
		return "", errors.New("no frame went by broadcast")
	case f.Rendezvous.Sent == 0 && d.o.eager < int(d.o.mtu.Link()):
		return "", errors.New("no frame went by rendezvous")
	}
	arrived := "every one that left a node arrived"
	if f.Missed > 0 {
		arrived += fmt.Sprintf(", except at %d nodes that a broadcast left out", f.Missed)
	}
	if f.Expired > 0 {
		arrived += fmt.Sprintf(", except up to %d that were given up, because they were not fetched in time", f.Expired)
	}
	return arrived + "; " + lab.Drops(d.lab), nil
}
