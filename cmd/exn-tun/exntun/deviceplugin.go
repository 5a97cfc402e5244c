package exntun

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"exnet/cmd/exn-tun/internal/cdi"
	"exnet/cmd/exn-tun/internal/deviceplugin"
	"exnet/directsockets/broker"
	"exnet/internal/command"

	"github.com/spf13/cobra"
)

func newDevicePlugin() *cobra.Command {
	var byName bool
	c := &cobra.Command{
		Use: "device-plugin DIR [flags]", Short: "offer direct sockets to a kubelet, for pods",
		Long: `Offers a kubelet direct sockets by exn-tun agent as a resource. A container asks
by limits: {exnet.io/direct: 1}. DIR is the kubelet's directory of device
plugins. It runs in the foreground, waits for the kubelet, and ends at SIGTERM
or SIGINT. It is a program beside the agent, so that pods start while the agent
is away: they stay on TCP, and are direct when it is back.`,
		Example: "exn-tun device-plugin /var/lib/kubelet/device-plugins",
		Args:    command.Arguments,
		RunE: func(c *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return errors.New("the device plugin needs root of this host: the kubelet's directory is root's")
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return offerDevices(ctx, deviceplugin.Config{Dir: args[0], ByName: byName, Log: command.Logger(c)})
		},
	}
	c.Flags().BoolVar(&byName, "cdi", false, "give names of CDI devices, not mounts and variables")
	return c
}

// offerDevices offers a kubelet what a Config says but for its Spec, until ctx is cancelled.
func offerDevices(ctx context.Context, c deviceplugin.Config) error {
	l, missing, err := cdi.Find(ctx)
	if err != nil {
		return err
	}
	for _, m := range missing {
		c.Log.Warn("device plugin: " + m)
	}
	if err := broker.Keep(); err != nil { // a container does not start without it
		return err
	}
	c.Spec = cdi.New(l)
	return deviceplugin.Run(ctx, c)
}
