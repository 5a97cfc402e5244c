package exntun

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/lnet"
	"exnet/lnet/selftest"

	"github.com/spf13/cobra"
)

// lnetOptions are the options of "exn-tun lnet-selftest".
type lnetOptions struct {
	test      string
	size      int // 0: 4k to 1M
	threads   int // 0: 1 to 64
	immediate int
	full      bool
	duration  time.Duration
}

func init() { parts = append(parts, newLNetSelftest) }

func newLNetSelftest() *cobra.Command {
	o := lnetOptions{test: "all", duration: time.Second}
	c := &cobra.Command{
		Use:   "lnet-selftest [flags]",
		Short: "measure Lustre's network layer over two emulated NICs",
		Long: `Measures LNET, Lustre's network layer, over two emulated NICs of this process,
as lnet_selftest does: RPCs that carry nothing (ping), or data to the client
(read) or from it (write), which is checked.`,
		Example: "exn-tun lnet-selftest --test read --threads 8",
		Args:    command.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runLNetSelftest(c.Context(), programOf(c), o) },
	}
	fs := c.Flags()
	fs.StringVar(&o.test, "test", o.test, "`TEST`: ping, read, write or all (all)")
	cli.Size(fs, &o.size, "size", 4096, lnet.MaxPayload, "`BYTES` of data of an RPC (4k to 1M in turn)")
	cli.Number(fs, &o.threads, "threads", 1, selftest.MaxThreads, "`N` RPCs at a time (1 to 64 in turn)")
	cli.Number(fs, &o.immediate, "immediate", 0, lnet.MaxImmediate, "`BYTES` that go without RMA (0)")
	fs.BoolVar(&o.full, "full", false, "check all data, not the ends of each page")
	cli.Duration(fs, &o.duration, "duration", time.Millisecond, time.Hour, "`TIME` of each row (1s)")
	return c
}

var lnetTests = map[string][]selftest.Test{
	"ping": {selftest.Ping}, "read": {selftest.Read}, "write": {selftest.Write},
	"all": {selftest.Ping, selftest.Read, selftest.Write},
}

func runLNetSelftest(ctx context.Context, p program, o lnetOptions) error {
	tests := lnetTests[o.test]
	if tests == nil {
		return cli.Usagef("--test %q: use ping, read, write or all", o.test)
	}
	const row = "%-10s %8s %8s %12s %10s\n"
	fmt.Fprintf(p.stdout, row, "test", "threads", "bytes", "RPC/s", "MB/s")
	for _, s := range o.testSpecs(tests) {
		r, err := selftest.Run(ctx, s)
		if err != nil {
			return fmt.Errorf("%s, %d threads, %d bytes: %w", s.Test, s.Threads, s.Size, err)
		}
		size, rate := "-", "-"
		if s.Test != selftest.Ping {
			size, rate = fmt.Sprint(s.Size), fmt.Sprintf("%.0f", r.PerSecond()*float64(s.Size)/1e6)
		}
		fmt.Fprintf(p.stdout, row, s.Test, fmt.Sprint(s.Threads), size, fmt.Sprintf("%.0f", r.PerSecond()), rate)
	}
	return nil
}

// testSpecs returns the rows, as the thesis measures them: by threads with 1 MB (figures 6.16a,
// 6.17a and 6.18), and by size with 16 threads (6.16b and 6.17b).
func (o lnetOptions) testSpecs(tests []selftest.Test) (specs []selftest.Spec) {
	for _, t := range tests {
		add := func(threads, size int) {
			specs = append(specs, selftest.Spec{Test: t, Threads: threads, Size: size, Immediate: o.immediate, Full: o.full, Duration: o.duration})
		}
		size, threads := cmp.Or(o.size, lnet.MaxPayload), cmp.Or(o.threads, 16)
		sized := o.size != 0
		if t == selftest.Ping {
			size, sized = 0, true
		}
		for n := 1; n <= selftest.MaxThreads && o.threads == 0; n *= 2 {
			add(n, size)
		}
		for n := 4096; n <= lnet.MaxPayload && !sized; n *= 2 {
			add(threads, n)
		}
		if sized && o.threads != 0 {
			add(threads, size)
		}
	}
	return specs
}
