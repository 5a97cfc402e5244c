package exntun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/node/control"

	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use: "explain PID [flags]", Short: "say of a running program why its connections are not direct",
		Long: `Says of each connection of a running program whether it is direct, why not, and,
if nothing has moved for a second, which end waits for which.`,
		Example: "exn-tun explain 4711",
		Args:    command.Arguments,
	}
	o := statusOptions{sockets: true}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := cli.ParseNumber(&o.pid, args[0], 1, math.MaxInt32); err != nil {
			return cli.Usagef("%q is no PID", args[0])
		}
		if err := o.checkFlags(); err != nil {
			return err
		}
		return runExplain(c.Context(), programOf(c).stdout, o)
	}
	o.defineFlags(c.Flags())
	return c
}

func runExplain(ctx context.Context, w io.Writer, o statusOptions) error {
	m, err := (&looker{o: o, wait: time.Second}).lookAtMoves(ctx)
	if errors.Is(err, control.ErrNoNode) && !processRuns(o.pid) {
		return noConnection(o.pid)
	}
	if err != nil {
		return err
	}
	if !writeExplain(w, o.pid, m.before, m.all) {
		return noConnection(o.pid)
	}
	return nil
}

// processRuns reports whether there is a process.
func processRuns(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return !errors.Is(err, fs.ErrNotExist)
}

// noConnection says that no broker knows a process.
func noConnection(pid int) error {
	if !processRuns(pid) {
		return noProcess(pid)
	}
	return fmt.Errorf("process %d has no connection that a broker here knows: is it under exn-run?", pid)
}

func noProcess(pid int) error { return fmt.Errorf("no process %d runs here", pid) }

// endKey names an end of a connection or a flow.
type endKey struct {
	local, remote netip.AddrPort
	udp, server   bool
}

func keyOf(c *connstats.Connection) endKey { return endKey{c.Local, c.Remote, c.UDP, c.Server} }

// otherEnd names the other end.
func (k endKey) otherEnd() endKey { return endKey{k.remote, k.local, k.udp, !k.server} }

// endsOf are all that are open. Their programs have names that may be printed then.
func endsOf(all []*control.Sockets) map[endKey]*connstats.Connection {
	ends := make(map[endKey]*connstats.Connection)
	for _, s := range all {
		for i := range s.Connections {
			c := &s.Connections[i]
			c.Program = printable(c.Program)
			ends[keyOf(c)] = c
		}
	}
	return ends
}

// writeExplain writes a line for each connection of a process. False: it has none.
func writeExplain(w io.Writer, pid int, before map[endKey]*connstats.Connection, all []*control.Sockets) (found bool) {
	ends := endsOf(all)
	for _, s := range all {
		for i := range s.Connections {
			c := &s.Connections[i]
			if c.PID != pid {
				continue
			}
			found = true
			explain.Restore(c)
			text := explain.Line(c)
			if c.Rule != "" {
				text += ", by the rule " + printableRule(c.Rule)
			}
			text += explain.Times(c) + explain.Amounts(c)
			key := keyOf(c)
			other := ends[key.otherEnd()]
			if was := before[key]; was != nil && was.Since.Equal(c.Since) {
				if moves := explain.Movement(was, c, other); moves != "" {
					text += "; " + moves
				}
			}
			fmt.Fprintln(w, text)
		}
	}
	return found
}
