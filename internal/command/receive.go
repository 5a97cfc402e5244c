package command

import (
	"exnet/internal/cli"
	"exnet/napi"

	"github.com/spf13/pflag"
)

// ReceiveFlags defines the flags that say how frames are received, with the names that
// configuration files and "exn-tun set" use, too.
func ReceiveFlags(fs *pflag.FlagSet, mode *napi.Mode, c *napi.Coalesce) {
	cli.Var(fs, mode, "mode", "`MODE` how frames are received: napi, interrupt or busy (napi)")
	fs.Func("coalesce-usecs", "`N` hold back an interrupt for so many microseconds (0)", func(s string) (err error) {
		c.Delay, err = cli.ParseMicroseconds(s, napi.MaxDelay)
		return err
	})
	cli.Number(fs, &c.Frames, "coalesce-frames", 0, 1<<16, "`N` or until so many frames are there (0: not counted)")
	fs.BoolVar(&c.Adaptive, "adaptive", c.Adaptive, "dynamic interrupt throttling instead")
}
