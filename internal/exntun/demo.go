package exntun

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"exnet/internal/exntun/lab"
	"exnet/internal/netns"
	"exnet/internal/tun"
)

func runDemo(ctx context.Context, p program, args []string) error {
	o, err := parseDemo(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, demoHelp())
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	// Before anything else: no user namespace helps where this is missing.
	if err := tun.Supported(); err != nil {
		return p.cannot(o, err)
	}
	if !netns.Privileged() {
		status, err := netns.ReexecInUserNS()
		if err != nil {
			return p.cannot(o, err)
		}
		return exitStatus(status)
	}
	rec, err := openRecording(o)
	if err != nil {
		return p.cannot(o, err)
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

// cannot returns err, for what keeps the demonstration from beginning, having
// told the reader of JSON, too.
func (p program) cannot(o demoOptions, err error) error {
	if !o.json {
		return err
	}
	r := newReport(o, lab.Pinger{})
	r.Error = oneLine(err)
	return errors.Join(err, r.printJSON(p.stdout))
}

// say tells what happens now.
func (p program) say(format string, args ...any) {
	fmt.Fprintf(p.stderr, "exn-tun demo: "+format+"\n", args...)
}

// runChecks is the demonstration.
func runChecks(ctx context.Context, p program, o demoOptions, rec *recording) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The first signal ends the run in order, the next one ends the program.
	context.AfterFunc(ctx, stop)

	d := demo{program: p, o: o, rec: rec, ping: lab.NewPinger()}
	d.report = newReport(o, d.ping)
	err := d.run(ctx)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		d.report.Error = oneLine(err)
	}
	d.report.conclude()
	if o.json {
		err = errors.Join(err, d.report.printJSON(p.stdout))
	} else if len(d.report.Checks) > 0 {
		d.report.printTable(p.stdout)
		if o.stats {
			fmt.Fprintln(p.stdout)
			printCounters(p.stdout, d.report.Nodes, d.report.DataPath)
		}
	}
	if err == nil && !d.report.OK {
		return exitStatus(exitFailure)
	}
	return err
}

// demo is a demonstration under way.
type demo struct {
	program
	o      demoOptions
	rec    *recording
	ping   lab.Pinger
	report *report
	lab    *lab.Lab
}

// run brings up the lab, makes the checks and removes the lab.
func (d *demo) run(ctx context.Context) (err error) {
	d.say("bringing up %d nodes", d.o.nodes)
	if d.lab, err = lab.New(d.o.cluster(), d.o.fair); err != nil {
		return err
	}
	defer func() {
		d.say("cleaning up")
		closed := d.lab.Close()
		d.report.add("cleanup", closed, "nodes, interfaces and namespaces are gone")
	}()
	if err := d.rec.start(d.lab); err != nil {
		return err
	}
	defer func() {
		if detail, err := d.rec.stop(); detail != "" {
			d.report.add("capture", err, detail)
		}
	}()
	veth, err := d.lab.Veth(d.o.congestion)
	if err != nil {
		return err
	}
	if err := d.report.describe(d.lab, veth); err != nil {
		return err
	}
	ctx, cancel := d.lab.Context(ctx)
	defer cancel()
	err = d.checkAll(ctx, veth)
	d.report.count(d.lab)
	return err
}

// checkAll makes the checks. It returns an error only when it could not go on.
func (d *demo) checkAll(ctx context.Context, veth lab.Path) error {
	for _, f := range lab.Families() {
		d.say("ping, transfer and broadcast over %v", f)
		for _, c := range []struct {
			name string
			run  func(context.Context, lab.Family) (string, error)
		}{
			{"reach", d.reach},
			{"transfer", d.transfer},
			{"broadcast", d.broadcast},
		} {
			detail, err := c.run(ctx, f)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			d.report.add(fmt.Sprintf("%s, %v", c.name, f), err, detail)
		}
	}
	for _, m := range d.o.measurements(d.ping) {
		for _, f := range lab.Families() {
			d.say("measuring %s over %v, exn0 and veth in turn", m.name, f)
			fig, err := m.measure(ctx, d.lab.Exn(1), veth, f, d.o.runs)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			d.report.add(fmt.Sprintf("%s, %v", m.name, f), err, fig.String())
			if err == nil {
				d.report.Checks[len(d.report.Checks)-1].measured = true
				d.report.Figures = append(d.report.Figures, fig)
			}
		}
	}
	detail, err := d.balance(ctx)
	d.report.add("frames", err, detail)
	return nil
}

// reach pings every other node from the first.
func (d *demo) reach(ctx context.Context, f lab.Family) (string, error) {
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
	return fmt.Sprintf("ping (%s) from node 1 to %s", d.ping.Name, others(d.o.nodes)), nil
}

func others(nodes int) string {
	if nodes == 2 {
		return "node 2"
	}
	return fmt.Sprintf("%d others", nodes-1)
}

// transfer sends data over exn0, and has the fabric's counters prove that this
// was its way.
func (d *demo) transfer(ctx context.Context, f lab.Family) (string, error) {
	before := d.carried()
	if err := lab.Transfer(ctx, d.lab.Exn(1), f, d.o.congestion, lab.TransferLen); err != nil {
		return "", err
	}
	carried := d.carried() - before
	if carried < lab.TransferLen {
		return "", fmt.Errorf("the sum is right, but of %d bytes only %d went over the fabric", lab.TransferLen, carried)
	}
	return fmt.Sprintf("%d MiB, SHA-256 equal; the fabric carried %.1f MiB", lab.TransferLen>>20, float64(carried)/(1<<20)), nil
}

// carried returns the bytes of all frames that came to node 2.
func (d *demo) carried() uint64 { return d.lab.Cluster.Nodes[1].Interface.Stats().Port.RxBytes }

func (d *demo) broadcast(ctx context.Context, f lab.Family) (string, error) {
	to := lab.BroadcastAddr()
	if f == lab.V6 {
		to = lab.AllNodes
	}
	return fmt.Sprintf("each node's datagram to %v reached all others", to), lab.Broadcast(ctx, d.lab, f)
}

// balance checks that every frame that left a node arrived at another. Frames
// may be under way at first: the kernel sends some of its own.
func (d *demo) balance(ctx context.Context) (string, error) {
	var lost string
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
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
		return "", errors.New("none went eagerly")
	case f.Broadcast.Sent == 0:
		return "", errors.New("none went by broadcast")
	case f.Rendezvous.Sent == 0 && d.o.eager < int(d.o.mtu.Link()):
		return "", errors.New("none went by rendezvous")
	}
	return "every one that left a node arrived; " + lab.Drops(d.lab), nil
}
