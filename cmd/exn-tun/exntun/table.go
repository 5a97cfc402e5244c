package exntun

import (
	"fmt"
	"io"
	"strings"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/display"
)

// tableWidth is the largest width of the tables, in columns.
const tableWidth = 80

// maxNodeLines is the largest number of nodes that are listed.
const maxNodeLines = 8

// printTable writes the report for people.
func (r *report) printTable(w io.Writer) {
	s := r.Setup
	printWrapped(w, fmt.Sprintf("%d nodes with exn0: MTU %d, eager up to %d bytes, %s, %s",
		s.Nodes, s.MTU, s.EagerThreshold, choose(s.FastPath, "fast path", "no fast path"),
		choose(s.RealTime, "real-time", "normal priority")))
	if s.Faults != nil {
		printWrapped(w, "links with faults: "+choose(*s.Faults == "", "none", strings.ReplaceAll(*s.Faults, ",", ", ")))
	}
	fmt.Fprintln(w)
	for i, n := range r.Nodes {
		if i == maxNodeLines {
			fmt.Fprintf(w, "  and %d more\n", len(r.Nodes)-i)
			break
		}
		fmt.Fprintf(w, "  node %-3d  %-11s  %-15s  %s\n", n.Node, n.Addr, n.Addr6, n.MAC)
	}
	r.printFigures(w)
	r.printFrames(w)
	r.printLinks(w)
	r.printChecks(w)
	fmt.Fprintln(w)
	printWrapped(w, r.verdictLine())
}

func (r *report) printFigures(w io.Writer) {
	if len(r.Figures) == 0 {
		return
	}
	const row = "  %-22s %-6s %6s %-13s %6s %-13s %5s\n"
	fmt.Fprintln(w)
	fmt.Fprintf(w, row, "TCP between two nodes", "", "exn0", "(min-max)", "veth", "(min-max)", "ratio")
	for _, f := range r.Figures {
		fmt.Fprintf(w, row, f.label, f.Unit, display.Figure(f.Exn.Median), f.Exn.formatSpan(),
			display.Figure(f.Veth.Median), f.Veth.formatSpan(), fmt.Sprintf("%.2f", f.Ratio))
	}
	fmt.Fprintf(w, "\n"+row, "the same programs", "", "direct", "(min-max)", "veth", "", "times")
	for _, f := range r.Figures {
		if f.Direct.Runs > 0 {
			fmt.Fprintf(w, row, f.label, f.Unit, display.Figure(f.Direct.Median), f.Direct.formatSpan(), display.Figure(f.Veth.Median), "", timesFast(f.SpeedUp))
		}
	}
	fmt.Fprintf(w, "  %s in turn; ping-pong: half of a round trip; TCP with %s;\n"+
		"  ratio: exn0 over veth; times: as fast as veth; veth's MTU is %d\n",
		runsOf(r.Figures[0].Exn.Runs), r.Setup.Congestion, r.Setup.VethMTU)
}

func runsOf(n int) string {
	if n == 1 {
		return "one run"
	}
	return fmt.Sprintf("medians of %d runs", n)
}

func (s sample) formatSpan() string {
	return "(" + display.Figure(s.Min) + "-" + display.Figure(s.Max) + ")"
}

func (r *report) printFrames(w io.Writer) {
	const row = "  %-12s %12s %12s  %s\n"
	fmt.Fprintln(w)
	fmt.Fprintf(w, row, "frames", "sent", "received", "how")
	for _, l := range []struct {
		name string
		lab.Way
		how string
	}{
		{"eager", r.Frames.Eager, fmt.Sprintf("up to %d bytes, as VELO messages", r.Setup.EagerThreshold)},
		{"rendezvous", r.Frames.Rendezvous, "longer ones, by RMA GET"},
		{"broadcast", r.Frames.Broadcast, "to all, as VELO multicast messages"},
	} {
		fmt.Fprintf(w, row, l.name, fmt.Sprint(l.Sent), fmt.Sprint(l.Received), l.how)
	}
}

// printLinks sums up what the links with faults had to do, if there are any.
func (r *report) printLinks(w io.Writer) {
	if r.Setup.Faults == nil {
		return
	}
	sum := make(map[string]uint64)
	for _, n := range r.Nodes {
		for _, c := range n.Counters {
			if rest, ok := strings.CutPrefix(c.Name, "wire."); ok {
				_, name, _ := strings.Cut(rest, ".")
				sum[name] += c.Value
			}
		}
	}
	fmt.Fprintln(w)
	text := fmt.Sprintf("links: %d packets, %d of them again; %d came damaged, %d too early, %d twice; %d replays, %d times down",
		sum["packets"], sum["retransmitted"], sum["crc_errors"], sum["out_of_order"], sum["repeated"], sum["replays"], sum["downs"])
	for _, line := range display.Wrap(text, tableWidth-2) {
		fmt.Fprintln(w, "  "+line)
	}
}

// printChecks lists the checks. It skips measurements that succeeded: printFigures has them.
func (r *report) printChecks(w io.Writer) {
	fmt.Fprintln(w)
	for _, c := range r.Checks {
		if c.OK && c.measured {
			continue
		}
		printCheck(w, c)
	}
}

// printCheck writes a check in lines that fit.
func printCheck(w io.Writer, c check) {
	const indent = "         "
	for i, line := range display.Wrap(c.Name+": "+cli.Printable(c.Detail), tableWidth-len(indent)) {
		if i == 0 {
			fmt.Fprintf(w, "  %-6s %s\n", choose(c.OK, "ok", "FAILED"), line)
		} else {
			fmt.Fprintln(w, indent+line)
		}
	}
}

// verdictLine summarizes the report in one line.
func (r *report) verdictLine() string {
	failed := r.failedChecks()
	switch {
	case r.Error != "":
		return "The demonstration ended early: " + r.Error
	case len(failed) > 0:
		return fmt.Sprintf("%d of %d checks FAILED: %s.", len(failed), len(r.Checks), strings.Join(failed, "; "))
	}
	return "All checks passed: " + r.Frames.String() + "."
}

func printWrapped(w io.Writer, text string) {
	for _, line := range display.Wrap(text, tableWidth) {
		fmt.Fprintln(w, line)
	}
}

func choose(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}
