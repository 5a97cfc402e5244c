package exntun

import (
	"fmt"
	"io"
	"strings"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/display"
)

// printScreen writes the report in one screen of 80 columns and 24 lines, if all is well: exn0
// works; the same programs on three ways; which of these suits which use.
func (r *report) printScreen(w io.Writer) {
	s := r.Setup
	if s.Faults != nil {
		printWrapped(w, "links with faults: "+choose(*s.Faults == "", "none", strings.ReplaceAll(*s.Faults, ",", ", ")))
	}
	fmt.Fprintf(w, "exn0 works between %d nodes, each in a network namespace of its own:\n", s.Nodes)
	r.printSummary(w)
	r.printWays(w)
	if len(r.Figures) > 0 {
		r.printNext(w)
	}
	fmt.Fprintln(w)
	printWrapped(w, r.verdictLine())
}

// printNext writes the three commands that come next on this machine.
func (r *report) printNext(w io.Writer) {
	next := [][2]string{
		{"exn-run --loopback PROGRAM", "direct sockets: run both ends so; needs no root"},
		{"exn-tun up --addr 10.2.0.1/24", "an exn0 for this host: any program runs over it"},
		{"exn-tun agent", "direct sockets for containers on any network"},
	}
	switch {
	case r.goRun: // there are no commands yet
		next[2], next[1] = next[0], next[0]
		next[0] = [2]string{"go install ./cmd/...", "puts the commands into $(go env GOPATH)/bin"}
		next[2] = [2]string{"exn-tun doctor", "what this machine lacks, and how to get it"}
	case !r.root:
		next[1] = [2]string{"exn-tun demo --shell", "a shell on a node, and another node beside it"}
		next[2] = [2]string{"exn-tun doctor", "what this machine lacks, and how to get it"}
	}
	fmt.Fprintln(w, "\nNext:")
	for _, n := range next {
		fmt.Fprintf(w, "  %-30s %s\n", n[0], n[1])
	}
}

// printSummary sums up what works over exn0 in a line, and lists what failed.
func (r *report) printSummary(w io.Writer) {
	all, programs := r.Error == "", ""
	for _, c := range r.Checks {
		all = all && (c.OK || !c.basic)
		if strings.HasPrefix(c.Name, "programs") && !strings.HasPrefix(c.Detail, "skipped") {
			programs = ", programs of this host"
		}
	}
	if all {
		fmt.Fprintf(w, "  ok     ping, %d MiB of TCP%s, broadcast; IPv4 and IPv6\n", lab.TransferLen>>20, programs)
	}
	for _, c := range r.Checks {
		if !c.OK || c.Name == "frames" || c.Name == "direct" || c.Name == "capture" {
			printCheck(w, c)
		}
	}
}

// printWays writes the figures of the three ways side by side.
func (r *report) printWays(w io.Writer) {
	if len(r.Figures) == 0 {
		return
	}
	const row = "  %-23s %-6s %9s %9s %9s %11s\n"
	fmt.Fprintln(w)
	fmt.Fprintf(w, row, "The same two programs", "", "TCP over", "TCP over", "direct", "times as")
	fmt.Fprintf(w, row, "from node to node", "", "veth", "exn0", "sockets", "fast as veth")
	for _, f := range r.Figures {
		direct, faster := "-", "-"
		if f.Direct.Runs > 0 {
			direct, faster = display.Figure(f.Direct.Median), timesFast(f.SpeedUp)
		}
		fmt.Fprintf(w, row, f.label, f.Unit, display.Figure(f.Veth.Median), display.Figure(f.Exn.Median), direct, faster)
	}
	if r.NoRedis != "" {
		for _, line := range display.Wrap("redis is left out: "+cli.Printable(r.NoRedis), tableWidth-2) {
			fmt.Fprintln(w, "  "+line)
		}
	}
	fmt.Fprintf(w, "  %s in turn; ping-pong: half of a round trip; TCP with %s\n", runsOf(r.Figures[0].Exn.Runs), r.Setup.Congestion)
}

// timesFast shows how many times as fast something is.
func timesFast(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
