package bench

import (
	"fmt"
	"strings"
	"time"

	"exnet/internal/bench/coredist"
	"exnet/internal/bench/mpi"
	"exnet/internal/bench/paths"
	"exnet/internal/bench/portbench"
	"exnet/internal/bench/programs"
	"exnet/internal/bench/result"
	"exnet/internal/command"

	"github.com/spf13/cobra"
)

// newRoot returns dsbench's commands, in the order of the help text.
func newRoot() *cobra.Command {
	var list strings.Builder
	for _, k := range paths.Kinds() {
		fmt.Fprintf(&list, "  %-10s %s\n", k.Name, k.About)
	}
	var modes []string
	for _, v := range paths.Variants {
		modes = append(modes, v.Name)
	}
	root := command.New("dsbench", "measure TCP and what replaces it side by side",
		"dsbench measures TCP and what replaces it over several paths side by side, in\ninterleaved runs.")
	root.Annotations = map[string]string{command.EndKey: fmt.Sprintf(`Paths:
%s  exn and exn-shm also take a receive mode, as in exn:busy: %s.

It sets up the paths itself and removes them. Without root it uses a user
namespace where that is allowed. Results go to standard output, all else to
standard error. It measures the distance of the two CPUs first, and shows it
with every result. It skips paths that cannot be set up here, and says so.
Exit status: 0 measured, 1 failed or interrupted (what was measured until then
is printed), or skipped a path that --paths names, 2 wrong usage.`, list.String(), strings.Join(modes, ", "))}
	for _, m := range measures() {
		root.AddCommand(newMeasure(m))
	}
	root.AddCommand(newPrograms(), newMPI(), newPorts(), newReport(), newTune(), newCompare(), newReadme(), newServe())
	var names []string
	for _, k := range paths.Kinds() {
		names = append(names, k.Name)
	}
	for _, c := range root.Commands() { // mpi and programs have names of their own
		switch c.Name() {
		case "mpi":
			command.Values(c, map[string]cobra.CompletionFunc{"paths": command.ListOf(mpi.Paths...), "mpi": command.ListOf("openmpi", "mpich")})
		case "programs":
			command.Values(c, map[string]cobra.CompletionFunc{"only": command.ListOf(programs.Names()...)})
		}
	}
	command.Values(root, map[string]cobra.CompletionFunc{
		"paths":      command.ListOf(names...),
		"control":    command.OneOf(names...),
		"congestion": command.Congestion,
		"direction":  command.OneOf("out", "in"),
		"cpus":       command.OneOf("any", "apart", "different", "same"),
		"mode":       command.OneOf("napi", "interrupt", "busy"),
	})
	return root
}

// newMeasure returns the command for a measure.
func newMeasure(m measure) *cobra.Command {
	var f *measureFlags
	var o options
	c := &cobra.Command{
		Use: m.name + " [flags]", Short: m.about,
		Long: measureTexts[m.name].long, Example: measureTexts[m.name].examples,
		Args: func(c *cobra.Command, args []string) (err error) {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			o, err = f.options()
			return usageError(err)
		},
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr()) },
	}
	f = newMeasureFlags(m, c.Flags())
	return c
}

// newPrograms returns the command that measures real programs.
func newPrograms() *cobra.Command {
	var o *programs.Options
	c := &cobra.Command{
		Use: "programs [flags]", Short: "measure real programs, with exn-run and without",
		Long: `Measures real programs over loopback, as they are (path tcp) and under exn-run
--loopback (path direct), in interleaved runs against two servers. A run in which
no connection of the client was direct fails.

Measures:
` + programs.About(),
		Example: `dsbench programs
    all that are installed, 5 runs of 2 seconds on each path
dsbench programs --only iperf3,sockperf --runs 10 --json
    two of them, as JSON`,
		Args: func(c *cobra.Command, args []string) error {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			return usageError(o.Check())
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return programs.Run(c.Context(), *o, result.ThisMachine(time.Now()), distance(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o = programs.Define(c.Flags())
	return c
}

// newMPI returns the command that measures MPI.
func newMPI() *cobra.Command {
	var o *mpi.Options
	c := &cobra.Command{
		Use: "mpi [flags]", Short: "measure MPI between two ranks, over all paths",
		Long: `Measures MPI between two ranks as the OSU Micro-Benchmarks do: latency (half a
round trip), bandwidth and message rate (windows of 64 messages), in interleaved
runs. Needs root, and the compiler of each MPI.

Paths: lo, veth, exn (TCP over exn0), ds (exn-run --loopback), ds-exn (exn-run
between two nodes). On these two a run without a direct connection does not count
and is repeated. shm is the MPI's own shared memory, without TCP.`,
		Example: `dsbench mpi
    Open MPI and MPICH, if installed, 5 runs on each path
dsbench mpi --mpi openmpi --paths lo,ds,shm --size 8,64k --json
    three paths, as JSON`,
		Args: func(c *cobra.Command, args []string) error {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			return usageError(o.Check())
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return mpi.Run(c.Context(), *o, result.ThisMachine(time.Now()), distance(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o = mpi.Define(c.Flags())
	return c
}

// newPorts returns the command that measures the NIC of programs in C.
func newPorts() *cobra.Command {
	var o *portbench.Options
	c := &cobra.Command{
		Use: "ports [flags]", Short: "the NIC of programs: libvelo2 and librma2",
		Long: `Measures the NIC that a node serves to programs in C, between two processes at a
node of its own: VELO's half round trip, PUT and GET against memcpy, registration,
and the CPU time of a process that waits for a notification. Takes no root, and
a C compiler only where no package has installed the program that measures.`,
		Example: `dsbench ports
    5 runs, the two ends on the first two CPUs
dsbench ports --cpus 0,2 --runs 10 --json
    other CPUs, as JSON`,
		Args: func(c *cobra.Command, args []string) error {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			return usageError(o.Check())
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return portbench.Run(c.Context(), *o, result.ThisMachine(time.Now()), coredist.Measure(o.CPUs()), c.OutOrStdout())
		},
	}
	o = portbench.Define(c.Flags())
	return c
}

// measureTexts say what is measured, and give examples.
var measureTexts = map[string]struct{ long, examples string }{
	"stream": {"Measures bandwidth: how much the receiving program gets, in Gbit/s.", `dsbench stream
    all paths, 128 KiB messages, 5 runs of 1 second each
dsbench stream --paths veth,exn --streams 2 --duration 2s
    two connections at once over exn0, compared with veth
dsbench stream --paths veth,exn --size 64,1k,16k,128k --runs 3 --json
    bandwidth over message size, as JSON
dsbench stream --paths exn --no-fast-path --mtu 9000
    every packet through netstack, at a smaller MTU; veth is added
dsbench stream --paths veth,exn:interrupt,exn:napi,exn:busy
    the receive modes side by side
dsbench stream --paths lo,ds --cpus same --chunk 32k
    direct sockets with both ends on one CPU
dsbench stream --connect 10.2.0.9
    to another host, where dsbench serve runs`},
	"pingpong": {"Measures latency: half the time of a round trip, in microseconds.", `dsbench pingpong
    all paths, 64-byte messages, 5 runs of 1 second each
dsbench pingpong --paths veth,exn --size 1,64,512,2048 --runs 10
    latency over message size
dsbench pingpong --paths lo,veth,exn --cpus any --congestion bbr --json
    where the scheduler places the two ends, with BBR, as JSON
dsbench pingpong --paths veth,relay,exn,exn-shm,ds --rest 30ms
    a request now and then, all asleep when it comes: what ping(8) sees
dsbench pingpong --paths lo --cpus same
    both ends on one CPU`},
	"crr": {`Measures connections: connect, request, response, close; how many a second,
and how long one takes. The server closes first, as one of HTTP/1.0 does.`, `dsbench crr
    all paths that have connections, 64-byte requests and responses
dsbench crr --paths veth,exn --streams 4
    four clients at once`},
	"rate": {`Measures message rate: small messages one way, each leaving at once
(TCP_NODELAY), in millions a second.`, `dsbench rate
    all paths, 64-byte messages
dsbench rate --paths lo,veth,exn --size 1,64,512,4k --direction in
    message rate over message size; the end that listens sends`},
	"cpu": {`Measures the price: CPU time, user and system, of all processes of the path,
in seconds for a gigabyte.`, `dsbench cpu
    all paths, 128 KiB messages
dsbench cpu --paths veth,exn:interrupt,exn:napi,exn:adaptive --size 64,1k,8k,64k --no-delay
    the receive modes over message size; every message is a frame
dsbench cpu --paths exn-shm --mode napi --coalesce-frames 16 --coalesce-usecs 50
    interrupts held back until 16 frames came, or 50 microseconds went by`},
}
