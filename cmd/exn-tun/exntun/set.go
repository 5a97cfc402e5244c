package exntun

import (
	"errors"
	"fmt"
	"strings"

	"exnet/internal/cli"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newSet() *cobra.Command {
	var o nodeOptions
	var settings control.Settings
	var link *linkSetting
	c := &cobra.Command{
		Use: "set [flags] SETTING=VALUE... | link A-B up|down", Short: "change how running nodes receive frames, or set a link down",
		Long: `Changes how a running node receives frames, while traffic goes on; or sets a
link of a fabric with a topology down or up, on all nodes. Traffic goes around a
link that is down.

Settings:
  mode=napi            interrupt, then polling until nothing is left
  mode=interrupt       an interrupt for each frame
  mode=busy            polling all the time; takes a core
  coalesce-usecs=N     hold back an interrupt for so long; 0: not at all
  coalesce-frames=N    or until so many frames are there; 0: not counted
  adaptive=on|off      dynamic interrupt throttling instead of these two`,
		Example: `exn-tun set mode=busy
exn-tun set --node 2 mode=napi coalesce-usecs=50 coalesce-frames=16
exn-tun set adaptive=on
exn-tun set link 1-2 down`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("say what to set, such as mode=busy")
			}
			if args[0] == "link" {
				var err error
				link, err = parseLink(args[1:])
				return err
			}
			var errs []error
			for _, a := range args {
				errs = append(errs, settings.Parse(a))
			}
			if err := errors.Join(errs...); err != nil {
				return cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.findDirectory(); err != nil {
				return err
			}
			if link != nil {
				return link.setOnNodes(programOf(c), o)
			}
			return runSet(o, settings)
		},
	}
	o.defineFlags(c.Flags())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return settingAsFlag(c.Flags(), err) })
	return c
}

// settingAsFlag is cli.FlagError for exn-tun set, whose settings are no flags.
func settingAsFlag(flags *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return cli.FlagError(flags, err)
	}
	name, _, _ := strings.Cut(unknown.GetSpecifiedName(), "=")
	names := append([]string{receiveTable}, control.SettingNames...)
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := cli.Closest(name, names)
	if near != "" && flags.Lookup(near) != nil {
		return cli.FlagError(flags, err)
	}
	hint := ""
	if near == receiveTable {
		near = control.SettingNames[0]
	}
	if near != "" {
		hint = fmt.Sprintf(": did you mean %s=VALUE?", near)
	}
	return cli.Usagef("there is no flag --%s: settings are SETTING=VALUE, such as mode=busy%s", name, hint)
}

// receiveTable is what configuration files call the table of these settings.
const receiveTable = "receive"

func runSet(o nodeOptions, s control.Settings) error {
	nodes, err := o.selectedNodes()
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
