package exntun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/control"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// statusOptions are the flags of "exn-tun status".
type statusOptions struct {
	nodeOptions
	json, watch, sockets bool
	interval             time.Duration
}

func newStatus() *cobra.Command {
	o := statusOptions{interval: time.Second}
	c := &cobra.Command{
		Use: "status [flags]", Short: "show nodes: interface, peers, receive mode, counters",
		Long: `Shows the nodes of a fabric on this host: the interface, neighbours, routes,
peers and their links, multicast groups, the receive mode with interrupts, polls
and work per poll, thresholds, and every counter. With --sockets it shows the
connections of programs that use direct sockets in the node's namespace instead.`,
		Example: `exn-tun status --node 1
exn-tun status --watch
exn-tun status --sockets --watch
exn-tun status --json | jq '.[].counters."exn.tx_stalls"'
exn-tun status --sockets --json | jq '.[].connections[].mode'`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runStatus(c.Context(), programOf(c), o) },
	}
	fs := c.Flags()
	o.define(fs)
	fs.BoolVar(&o.sockets, "sockets", false, "direct sockets: how each connection goes, and why")
	fs.BoolVar(&o.json, "json", false, "one JSON array with an object for each node")
	fs.BoolVar(&o.watch, "watch", false, "again and again, until SIGINT")
	cli.Duration(fs, &o.interval, "interval", minDuration, maxDuration, "`TIME` between two looks (1s)")
	return c
}

func runStatus(ctx context.Context, p program, o statusOptions) error {
	if err := o.resolve(); err != nil {
		return err
	}
	if !o.watch {
		return printStatus(p.stdout, o)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	for {
		// The whole picture in one write: it does not flicker.
		var b bytes.Buffer
		if !o.json && isTerminal(p.stdout) {
			b.WriteString("\x1b[H\x1b[2J") // home, clear
		}
		if err := printStatus(&b, o); errors.Is(err, control.ErrNoNode) {
			fmt.Fprintln(p.stderr, cli.Text(err)) // it may come back
		} else if err != nil {
			return err
		}
		if _, err := p.stdout.Write(b.Bytes()); err != nil {
			return nil // the reader has had enough
		}
		select {
		case <-time.After(o.interval):
		case <-ctx.Done():
			return nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printStatus prints the status of the nodes that are meant, or with --sockets their
// direct sockets.
func printStatus(w io.Writer, o statusOptions) error {
	if o.sockets {
		all, err := askAll(o.nodeOptions, (*control.Client).Sockets)
		return printAll(w, all, err, o.json, writeSockets)
	}
	all, err := askAll(o.nodeOptions, (*control.Client).Status)
	return printAll(w, all, err, o.json, writeStatus)
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
