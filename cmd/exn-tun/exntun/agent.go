package exntun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"exnet/cmd/exn-tun/internal/deviceplugin"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/node/agent"
	"exnet/node/daemon"
	"exnet/node/exporter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// agentOptions are the flags of "exn-tun agent".
type agentOptions struct {
	devicePlugin string // the kubelet's directory; "": none
	cdi          bool
	metrics      exporter.Config
	pin          string // see agent.Config
}

func newAgent() *cobra.Command {
	var o agentOptions
	c := &cobra.Command{
		Use: "agent [flags]", Short: "direct sockets between containers, over their own networks",
		Long: `Serves direct sockets to the programs of this host and of all its containers,
whatever networks join them: a bridge, routes, translated addresses, IPv4 or
IPv6. No exn0 is needed, and nothing of the networks changes. It runs in the
foreground, prints one line when it is ready, and ends at SIGTERM or SIGINT;
connections that are direct go on without it. See docs/any-network.md.

A container asks for it by its environment: LD_PRELOAD with the library of
exn-run, or EXNET=1 for programs that exn-go has built; exn-tun cdi has a
runtime give it that, and exn-tun device-plugin a kubelet. exn-tun status
--sockets shows which connections are direct, and why others are not.`,
		Example: `exn-tun agent
exn-tun agent --metrics :9400`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runAgent(c.Context(), programOf(c), o, command.Logger(c))
		},
	}
	fs := c.Flags()
	fs.StringVar(&o.devicePlugin, "device-plugin", "", "`DIR` of a kubelet's device plugins: be exn-tun device-plugin, too, for as long as the agent runs")
	fs.BoolVar(&o.cdi, "cdi", false, "with --device-plugin: give names of CDI devices, not mounts and variables")
	fs.StringVar(&o.pin, "pin", "", "`DIR` on a BPF file system, such as /sys/fs/bpf/exnet: what sees the handshakes stays there when the agent ends, and the next agent misses none; remove DIR when none follows (it ends with the agent)")
	fs.Func("metrics", "`[ADDR]:PORT` serve Prometheus metrics of the containers over HTTP at /metrics; without ADDR on 127.0.0.1 only (off)", func(s string) (err error) {
		o.metrics.Addr, err = daemon.MetricsAddr(s)
		return err
	})
	fs.StringVar(&o.metrics.Token, "metrics-token", "", "`FILE` only who shows what is in it may read the metrics (Authorization: Bearer TOKEN); it may change (all may)")
	return c
}

func runAgent(ctx context.Context, p program, o agentOptions, log *slog.Logger) error {
	if o.cdi && o.devicePlugin == "" {
		return cli.Usagef("--cdi is for --device-plugin")
	}
	if o.metrics.Token != "" && o.metrics.Addr == "" {
		return cli.Usagef("--metrics-token also needs --metrics, for example :9400")
	}
	if os.Geteuid() != 0 {
		return errors.New("the agent needs root of this host: it looks at the sockets of all containers")
	}
	if err := noCore(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// The first signal ends it in order, the next one ends the program.
	context.AfterFunc(ctx, stop)
	jobs, ctx := errgroup.WithContext(ctx)
	if o.metrics.Addr != "" {
		o.metrics.About, o.metrics.Log = func() string { return "exn-tun agent" }, log
		e, err := exporter.Open(o.metrics, agent.NewCollector())
		if err != nil {
			return err
		}
		defer e.Close()
		log.Info("metrics", "url", e.URL())
		jobs.Go(func() error { return e.Run(ctx) })
	}
	if o.devicePlugin != "" {
		jobs.Go(func() error {
			return offerDevices(ctx, deviceplugin.Config{Dir: o.devicePlugin, ByName: o.cdi, Log: log})
		})
	}
	jobs.Go(func() error {
		return agent.Run(ctx, agent.Config{Log: log, Attach: attachByChild, Rules: podRules, Pin: o.pin, Ready: func() {
			fmt.Fprintln(p.stdout, "direct sockets between the containers of this host")
			notifySystemd("READY=1")
		}})
	})
	err := jobs.Wait()
	notifySystemd("STOPPING=1")
	if errors.Is(err, agent.ErrUnsupported) {
		err = fmt.Errorf("%w; between namespaces that have an exn0, direct sockets need neither (exn-tun up)", err)
	}
	return err
}
