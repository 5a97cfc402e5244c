package exntun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/netns"
	"exnet/node/control"
	"exnet/node/daemon"
	"exnet/node/tun"

	"github.com/spf13/cobra"
)

func newUp() *cobra.Command {
	var o *upOptions
	c := &cobra.Command{
		Use: "up [flags]", Short: "run a node of a fabric until it is stopped",
		Long: `Runs one node of a fabric in the foreground. It brings up exn0 in this network
namespace or another, finds the fabric's other nodes on this host (with --listen
those of other hosts, too), and carries packets to and from them, on this host
through shared memory. Once it is up it prints one line. SIGTERM, SIGINT or
exn-tun down end it; then nothing is left behind.

With --replace a new process goes on in the place of a node: exn0 stays, with
its addresses, routes and connections, and packets wait in it meanwhile.`,
		Example: `exn-tun up --addr 10.2.0.1/24
    a node of fabric lab, with a free node ID
exn-tun up --netns b --addr 10.2.0.2/24 --addr6 fd00:10:2::2/64
    another one, in a namespace that ip netns add b made
exn-tun up --config /etc/exn/lab.toml --node 7
    with a configuration file; flags win over it
exn-tun up --netns c --addr 10.2.0.3/24 --detach --wait 2
    in the background; returns when it is linked with both others
exn-tun up --addr 10.2.0.3/24 --detach --replace
    this program, or another configuration, in place of the node that has exn0
exn-tun up --addr 10.2.0.3/24 --listen :4791 --join host1,host2 \
        --key node3.key --trust lab-ca.crt
    with nodes of other hosts (exn-tun key, docs/hosts.md)`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runUp(c.Context(), programOf(c), o, command.Logger(c))
		},
	}
	o = newUpOptions(c.Flags())
	return c
}

func runUp(ctx context.Context, p program, o *upOptions, log *slog.Logger) error {
	cfg, err := o.daemonConfig()
	var missing *fs.PathError
	if errors.As(err, &missing) {
		return err // the file is wrong, not the arguments
	}
	if err != nil {
		return cli.UsageError{Err: cli.Mistakes(err)}
	}
	if o.file == "" {
		cfg.Dash = "--"
	}
	if cfg, err = cfg.WithDefaults(); err != nil && o.file != "" {
		return cli.UsageError{Err: fmt.Errorf("%s: %w", o.file, err)}
	} else if err != nil {
		return cli.UsageError{Err: err}
	}
	if err := tun.Supported(); err != nil {
		return err
	}
	if !netns.NetAdmin() {
		return errors.New("making an interface needs root (CAP_NET_ADMIN): run as root, or in a user namespace as with unshare --user --map-root-user --net")
	}
	if cfg.NetNS != "" && !netns.Privileged() {
		return errors.New("entering another network namespace needs root (CAP_SYS_ADMIN): run as root, or start it in that namespace, without --netns")
	}
	if err := noCore(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The first signal ends the node in order, the next one ends the program.
	context.AfterFunc(ctx, stop)
	if o.detach && !isDetached() {
		return startDetached(ctx, p)
	}
	logFile, err := openLog(o.log)
	if err != nil {
		return fmt.Errorf("--log-file: %w", err)
	}
	if logFile != nil {
		defer logFile.Close()
	}
	cfg.Log = log
	return o.runNode(ctx, p, cfg, logFile)
}

// noCore has the process, and those that it starts, leave no core dump: it would have the node's
// key and everybody's traffic in it. Whoever wants one raises the limit again (prlimit).
func noCore() error {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &l)
	if l.Cur = 0; err == nil {
		err = unix.Setrlimit(unix.RLIMIT_CORE, &l)
	}
	if err != nil {
		return fmt.Errorf("core dumps cannot be switched off: %w", err)
	}
	return nil
}

// runNode runs the node, and announces when it is up.
func (o *upOptions) runNode(ctx context.Context, p program, cfg daemon.Config, logFile *os.File) error {
	if cfg.Left = storedInterface(cfg.Interface); cfg.Left == nil && o.replace {
		if err := replaceNode(ctx, &cfg); err != nil {
			return err
		}
	}
	d, err := daemon.Start(cfg)
	if errors.Is(err, tun.ErrNameTaken) {
		closeKept(cfg.Interface) // what systemd keeps may have the name, and not fit
	}
	if err != nil {
		return startFailure(cfg, err)
	}
	if err := storeInterface(cfg.Interface, d.Dup); err != nil {
		cfg.Log.Warn("systemd does not keep the interface for a restart", "reason", err)
	}
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	told := make(chan error, 1)
	go func() {
		err := waitPeers(ctx, o.wait, d.Status)
		if err == nil {
			fmt.Fprintln(p.stdout, d)
			go unmapTwice(ctx, func() {
				if uerr := unmapCode(); uerr != nil {
					cfg.Log.Debug(uerr.Error())
				}
			})
			notifySystemd("READY=1")
			if o.detach {
				err = letGo(logFile)
			}
		}
		if err != nil {
			cancel(err)
		}
		told <- err
	}()
	err = d.Run(ctx)
	cancel(nil)
	waited := <-told
	if errors.Is(waited, errInterrupted) {
		waited = nil // it was asked to end
	}
	if asked.Err() == nil {
		// exn-tun down, not systemd, has ended the node, or it has failed: no restart is to come.
		closeKept(cfg.Interface)
	}
	notifySystemd("STOPPING=1")
	return errors.Join(waited, err, d.Close())
}

// startFailure returns why a node cannot start: if its namespace has a node already, that is why
// its interface, IP address or ID is taken.
func startFailure(cfg daemon.Config, err error) error {
	if !errors.Is(err, tun.ErrNameTaken) && !errors.Is(err, emp.ErrAddress) && !errors.Is(err, fabric.ErrInUse) {
		return err
	}
	dir, node, ok := control.Holder(cfg.Dir, cmp.Or(cfg.NSPath(), "/proc/self/ns/net"), cfg.Interface)
	if !ok {
		return err
	}
	name := filepath.Base(dir)
	flag := "--fabric " + name
	if usual, err := emp.DefaultDir(name); err != nil || usual != dir {
		flag = "--dir " + dir
	}
	return fmt.Errorf("this namespace already has node %d of fabric %s, as %s: end it with exn-tun down %s --node %[1]d, or give this one another --interface", node, name, cfg.Interface, flag)
}

func newDown() *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use: "down [flags]", Short: "end the nodes of a fabric",
		Long: `Ends the nodes of a fabric on this host, waits until they are gone, and removes
what killed ones left.`,
		Example: `exn-tun down
exn-tun down --fabric lab --node 2`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runDown(c.Context(), programOf(c), o) },
	}
	o.defineFlags(c.Flags())
	return c
}

func runDown(ctx context.Context, p program, o nodeOptions) error {
	if err := o.findDirectory(); err != nil {
		return err
	}
	removed, err := control.Clean(o.dir)
	if err != nil {
		return err
	}
	for _, n := range removed {
		fmt.Fprintf(p.stdout, "node %d was dead, its files are removed\n", n)
	}
	nodes, err := o.selectedNodes()
	if errors.Is(err, control.ErrNoNode) && len(removed) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downTime, fmt.Errorf("it did not end within %v", downTime))
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

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "check a configuration file",
		Long: `Checks a configuration file of exn-tun up: exit status 0 if it is good, else 1
and a line for each mistake.`,
		Example: "exn-tun check /etc/exn/lab.toml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one configuration file")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Mistakes(runCheck(programOf(c), args[0]))
		},
	}
}

func runCheck(p program, file string) error {
	cfg, err := daemon.CheckFile(file)
	if err != nil {
		return err
	}
	node := "a free node ID"
	if cfg.Node != nil {
		node = fmt.Sprintf("node %d", *cfg.Node)
	}
	fmt.Fprintf(p.stdout, "%s is good: %s of fabric %s in %s, %d addresses, MTU %d\n", file, node, cfg.Fabric, cfg.Dir, len(cfg.Addrs), cfg.MTU)
	return nil
}
