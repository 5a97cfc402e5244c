package exntun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"exnet/internal/control"

	"golang.org/x/term"
)

func runStatus(ctx context.Context, p program, args []string) error {
	var asJSON, watch, sockets bool
	interval := time.Second
	o, err := parseNodeOptions("status", args, nil, func(fs *flag.FlagSet) {
		fs.BoolVar(&asJSON, "json", false, "")
		fs.BoolVar(&sockets, "sockets", false, "")
		fs.BoolVar(&watch, "watch", false, "")
		fs.Func("interval", "", func(s string) error { return setDuration(&interval, s) })
	})
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, statusHelp)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	if !watch {
		return printStatus(p.stdout, o, asJSON, sockets)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	for {
		// The whole picture in one write: it does not flicker.
		var b bytes.Buffer
		if !asJSON && isTerminal(p.stdout) {
			b.WriteString("\x1b[H\x1b[2J") // home, clear
		}
		if err := printStatus(&b, o, asJSON, sockets); errors.Is(err, control.ErrNoNode) {
			fmt.Fprintln(p.stderr, oneLine(err)) // it may come back
		} else if err != nil {
			return err
		}
		if _, err := p.stdout.Write(b.Bytes()); err != nil {
			return nil // the reader has had enough
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printStatus prints the status of the nodes that are meant, or with sockets their
// direct sockets.
func printStatus(w io.Writer, o nodeOptions, asJSON, sockets bool) error {
	if sockets {
		all, err := askAll(o, (*control.Client).Sockets)
		return printAll(w, all, err, asJSON, writeSockets)
	}
	all, err := askAll(o, (*control.Client).Status)
	return printAll(w, all, err, asJSON, writeStatus)
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
