package exntun

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"exnet/internal/control"
	"exnet/internal/daemon"
	"exnet/internal/netns"
	"exnet/internal/tun"
)

func runUp(ctx context.Context, p program, args []string) error {
	cfg, err := parseUp(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, upHelp())
		return nil
	}
	var missing *fs.PathError
	if errors.As(err, &missing) {
		return err // the file's fault, not that of the arguments
	}
	if err != nil {
		return usageError{err}
	}
	if cfg, err = cfg.WithDefaults(); err != nil {
		return usageError{err}
	}
	if err := tun.Supported(); err != nil {
		return err
	}
	if !netns.NetAdmin() {
		return errors.New("to make an interface takes root (CAP_NET_ADMIN): run as root, or in a user namespace as with unshare --user --map-root-user --net")
	}
	if cfg.NetNS != "" && !netns.Privileged() {
		return errors.New("to enter another network namespace takes root (CAP_SYS_ADMIN): run as root, or start it in that namespace, without --netns")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The first signal ends the node in order, the next one ends the program.
	context.AfterFunc(ctx, stop)

	cfg.Log = slog.New(slog.NewTextHandler(p.stderr, nil))
	d, err := daemon.Start(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, d)
	notify("READY=1")
	err = d.Run(ctx)
	notify("STOPPING=1")
	return errors.Join(err, d.Close())
}

// notify tells systemd how far the service is (sd_notify(3)). Nothing depends on
// its arrival where nobody listens.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}

func runDown(ctx context.Context, p program, args []string) error {
	o, err := parseNodeOptions("down", args, nil)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, downHelp)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	removed, err := control.Clean(o.dir)
	if err != nil {
		return err
	}
	for _, n := range removed {
		fmt.Fprintf(p.stdout, "node %d was dead, its files are removed\n", n)
	}
	nodes, err := o.nodes()
	if errors.Is(err, control.ErrNoNode) && len(removed) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downTime, fmt.Errorf("it has not ended within %v", downTime))
	defer cancel()
	for _, n := range nodes {
		c, err := control.Dial(o.dir, n)
		if err != nil {
			return err
		}
		err = errors.Join(c.Stop(ctx), c.Close())
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "node %d is down\n", n.Node)
	}
	return nil
}

func runCheck(_ context.Context, p program, args []string) error {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.SetOutput(p.stderr)
	fs.Usage = func() {}
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, checkHelp)
		return nil
	}
	if err == nil && fs.NArg() != 1 {
		err = errors.New("name one configuration file")
	}
	if err != nil {
		return usageError{err}
	}
	cfg, err := daemon.ReadFile(fs.Arg(0))
	if err != nil {
		return err
	}
	if cfg, err = cfg.WithDefaults(); err != nil {
		return fmt.Errorf("%s: %w", fs.Arg(0), err)
	}
	node := "a free node ID"
	if cfg.Node != nil {
		node = fmt.Sprintf("node %d", *cfg.Node)
	}
	fmt.Fprintf(p.stdout, "%s is good: %s of fabric %s in %s, %d addresses, MTU %d\n", fs.Arg(0), node, cfg.Fabric, cfg.Dir, len(cfg.Addrs), cfg.MTU)
	return nil
}

func runSet(_ context.Context, p program, args []string) error {
	var s control.Settings
	o, err := parseNodeOptions("set", args, func(fs *flag.FlagSet) error {
		if fs.NArg() == 0 {
			return errors.New("say what to set, such as mode=busy")
		}
		for _, a := range fs.Args() {
			if err := s.Parse(a); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, setHelp)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	nodes, err := o.nodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		c, err := control.Dial(o.dir, n)
		if err != nil {
			return err
		}
		if err := errors.Join(c.Set(s), c.Close()); err != nil {
			return err
		}
	}
	return nil
}
