package exntun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/outfile"
	"exnet/node/capture"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

func newCapture() *cobra.Command {
	var o captureOptions
	c := &cobra.Command{
		Use: "capture [flags]", Short: "write the frames of a running node as pcapng",
		Long: `Writes the Ethernet frames of a node's interface as pcapng, with their checksums
filled in, until SIGINT, or until the reader or the node ends. Large
segments appear whole. A reader that is too slow misses frames; the traffic does
not.

With --direct it writes the packets of programs' direct connections and flows,
as they are on the networks of their namespaces: meanwhile these connections go
back to TCP and UDP, and new ones stay there. Afterwards all may be direct again
but TCP connections to other hosts that went back. This wants root.`,
		Example: `exn-tun capture --node 1 | tcpdump -n -r -
exn-tun capture --node 1 -o exn0.pcapng
exn-tun capture --direct --container web --port 6379 -o redis.pcapng
exn-tun capture | wireshark -k -i -`,
		Args: command.NoArgs,
	}
	fs := c.Flags()
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.only = fs.Changed("fabric") || fs.Changed("dir") || o.node != nil
		return runCapture(c.Context(), programOf(c), o)
	}
	o.defineFlags(fs)
	fs.BoolVar(&o.direct, "direct", false, "packets of direct connections, which go by TCP meanwhile")
	cli.Group(fs, "With --direct", func(fs *pflag.FlagSet) { directFlags(fs, &o.filter) })
	c.Flags().StringVarP(&o.file, "output", "o", "-", "`FILE` write to a file or named pipe (standard output)")
	c.Flags().StringVarP(&o.file, "write", "w", "-", "as tcpdump calls --output")
	_ = c.Flags().MarkHidden("write") // it fails for a flag that is not there
	c.Flags().FuncP("snaplen", "s", "`BYTES` no more than so much of each frame; 0: all (0)", func(s string) (err error) {
		o.snapLen, err = cli.ParseSize(s, 0, math.MaxInt32)
		return err
	})
	return c
}

// captureOptions are the flags of "exn-tun capture".
type captureOptions struct {
	nodeOptions
	file    string // "-": standard output
	snapLen int
	direct  bool
	only    bool        // with direct: the named nodes' programs only
	filter  broker.Rule // with direct: which connections
}

func runCapture(ctx context.Context, p program, o captureOptions) error {
	file := o.file
	if file == "-" && isTerminal(p.stdout) {
		return cli.Usagef("a capture cannot go to a terminal: use -o FILE, or a pipe as in exn-tun capture | tcpdump -r -")
	}
	if err := o.findDirectory(); err != nil {
		return err
	}
	write, close, err := o.captureWriter()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if file != "-" {
		f, err := outfile.OpenLive(file)
		if err != nil {
			return errors.Join(err, close())
		}
		return errors.Join(ignorePipe(write(ctx, p, f)), f.Close(), close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer whenUnread(p.stdout, cancel)()
	return errors.Join(ignorePipe(write(ctx, p, p.stdout)), close())
}

// captureWriter returns what writes the capture, and what has to be closed then.
func (o captureOptions) captureWriter() (write func(context.Context, program, io.Writer) error, close func() error, err error) {
	if o.direct {
		return o.captureDirect, func() error { return nil }, nil
	}
	if o.filter != (broker.Rule{}) {
		return nil, nil, cli.Usagef("--container, --port, --to and --pid are for --direct")
	}
	nodes, err := o.selectedNodes()
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) > 1 {
		return nil, nil, cli.Usagef("there are %d nodes in %s: choose one with --node", len(nodes), o.dir)
	}
	c, err := control.Dial(o.dir, nodes[0])
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, p program, w io.Writer) error {
		var all capture.Tally
		err := c.Capture(ctx, io.MultiWriter(w, &all), o.snapLen)
		if all.Ended {
			fmt.Fprintf(p.stderr, "%s written; %d lost\n", display.Count(int(all.Written), "frame"), all.Lost())
		}
		return err
	}, c.Close, nil
}

// readerPoll is the time between two checks that a pipe still has a reader.
const readerPoll = 200 * time.Millisecond

// whenUnread calls f once w is a pipe without a reader. A write would find that out only when
// there is something to write. The caller must call stop.
func whenUnread(w io.Writer, f func()) (stop func()) {
	file, ok := cli.Unwrap(w).(*os.File)
	if !ok {
		return func() {}
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			p := []unix.PollFd{{Fd: int32(file.Fd())}} // poll reports POLLERR unasked
			if _, err := unix.Poll(p, 0); err == nil && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				f()
				return
			}
			select {
			case <-time.After(readerPoll):
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// ignorePipe drops the error of a pipe that its reader has closed.
func ignorePipe(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
