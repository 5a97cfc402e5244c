package exntun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/node/control"

	"github.com/spf13/cobra"
)

func newTop() *cobra.Command {
	o := statusOptions{top: true, watch: true, interval: time.Second}
	once := false
	c := &cobra.Command{
		Use: "top [flags]", Short: "show the busiest connections of programs, live",
		Long: `Shows the connections of programs that use direct sockets: those that move most
first, then those whose bytes wait to be read, until q or SIGINT.`,
		Example: "exn-tun top\nexn-tun top --once",
		Args:    command.NoArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.watch = !once
		return runStatus(c.Context(), programOf(c), o)
	}
	fs := c.Flags()
	o.defineFlags(fs)
	fs.BoolVar(&once, "once", false, "print them once")
	cli.Duration(fs, &o.interval, "interval", minDuration, maxDuration, "`TIME` between two looks (1s)")
	return c
}

// printTop looks, and writes what has moved since the last look. If there is nobody to ask at the
// first look, it fails; later somebody may come back.
func (l *looker) printTop(ctx context.Context, w io.Writer) error {
	m, err := l.lookAtMoves(ctx)
	if errors.Is(err, control.ErrNoNode) && l.ends == nil {
		return errors.New(err.Error()) // it is no control.ErrNoNode, after which one looks again
	}
	if err == nil {
		writeTop(w, m.before, m.now, m.since)
	}
	return err
}

// topLines is how many connections are shown.
const topLines = 20

// topLine is what is shown of a connection.
type topLine struct {
	*connstats.Connection
	out, in         uint64 // bytes a second
	byOther, byThis uint64 // not read
}

// writeTop writes the connections that move most, in 80 columns, each once if both of its ends are
// known.
func writeTop(w io.Writer, before, now map[endKey]*connstats.Connection, since time.Duration) {
	var lines []topLine
	for key, c := range now {
		other := now[key.otherEnd()]
		if other != nil && c.Server {
			continue
		}
		t := topLine{Connection: c}
		t.byOther, t.byThis = explain.Unread(c, other)
		t.out, t.in = moves{before: before, now: now, since: since}.endRates(key)
		lines = append(lines, t)
	}
	slices.SortFunc(lines, func(a, b topLine) int {
		return cmp.Or(cmp.Compare(b.out+b.in, a.out+a.in), cmp.Compare(b.byOther+b.byThis, a.byOther+a.byThis),
			a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.PID, b.PID))
	})
	const row = "%-16.16s %-20.20s %-6.6s %8s %8s %8s %8s\n"
	fmt.Fprintf(w, "%s\n\n", display.Count(len(lines), "connection"))
	fmt.Fprintf(w, row, "", "", "", "sends", "gets", "unread", "unread")
	fmt.Fprintf(w, row, "process", "to", "by", "/s", "/s", "there", "here")
	for _, t := range lines[:min(len(lines), topLines)] {
		arrow := choose(t.Server, "< ", "> ")
		fmt.Fprintf(w, row, processOf(*t.Connection), arrow+t.Remote.String(), choose(t.Mode == connstats.ModeDirect.String(), t.Path, choose(t.UDP, "udp", "tcp")),
			display.Bytes(t.out), display.Bytes(t.in), display.Bytes(t.byOther), display.Bytes(t.byThis))
	}
}
