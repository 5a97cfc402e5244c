package exntun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"exnet/cmd/exn-tun/internal/clustercheck"
	"exnet/internal/cli"
	"exnet/internal/command"

	"github.com/spf13/cobra"
)

// errCluster says that the report has a failure. The report says which.
var errCluster = errors.New("not all nodes passed")

func newCluster() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster COMMAND [flags]", Short: "try direct sockets on a Kubernetes cluster",
		Long:    "Tries direct sockets on the nodes of a Kubernetes cluster.",
		Example: "exn-tun cluster check",
		RunE:    command.Choose,
	}
	c.AddCommand(newClusterCheck(), newClusterServe(), newClusterDial())
	return c
}

func newClusterCheck() *cobra.Command {
	cfg := clustercheck.Config{Image: "exnet:latest", Within: time.Minute}
	kubectl, asJSON := "kubectl", false
	c := &cobra.Command{
		Use: "check [flags]", Short: "see that the pods of each node talk direct",
		Long: `Starts two pods on each node that offers exnet.io/direct, in namespace
exnet-check, and says whether they talk direct, how fast, and if not, why not.
A third pod on the next node shows that connections between nodes work. All of
it goes when the command ends. It asks kubectl, and needs the right to make a
namespace and pods.

Exit status: 0 every node passed, 1 not, 2 wrong usage.`,
		Example: "exn-tun cluster check --image registry.example/exnet:1.0",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p := programOf(c)
			cfg.Kubectl = clustercheck.Command(kubectl)
			cfg.Say = func(line string) { fmt.Fprintln(p.stderr, line) }
			all, err := clustercheck.Check(c.Context(), cfg)
			if err != nil {
				return err
			}
			return writeCluster(p.stdout, all, asJSON)
		},
	}
	fs := c.Flags()
	fs.StringVar(&cfg.Image, "image", cfg.Image, "`IMAGE` of packaging/Containerfile, as the nodes know it")
	fs.StringVar(&kubectl, "kubectl", kubectl, "`PROGRAM` that is asked")
	cli.Duration(fs, &cfg.Within, "within", time.Second, time.Hour, "`TIME` that servers, and then clients, may take (1m)")
	fs.BoolVar(&asJSON, "json", false, "one JSON array instead of a table")
	return c
}

// writeCluster writes the report. errCluster: not everything is in order.
func writeCluster(w io.Writer, all []clustercheck.Result, asJSON bool) error {
	var failed error
	for _, r := range all {
		if !r.OK {
			failed = errCluster
		}
	}
	if len(all) == 0 {
		failed = errors.New("the cluster has no node")
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return errors.Join(e.Encode(all), failed)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "client on\tserver on\tway\t64 bytes there and back\tover TCP\t")
	for _, r := range all {
		switch {
		case r.Problem != "":
			fmt.Fprintf(t, "%s\t%s\tFAILED\t%s\n", r.Client, r.Server, cli.Printable(r.Problem))
		case r.Direct:
			fmt.Fprintf(t, "%s\t%s\tdirect\t%.1f µs\t%.1f µs\t\n", r.Client, r.Server, r.RoundTrip, r.TCP)
		case r.OK:
			fmt.Fprintf(t, "%s\t%s\tTCP\t\t%.1f µs\t\n", r.Client, r.Server, r.TCP)
		default:
			fmt.Fprintf(t, "%s\t%s\tTCP: FAILED\t%s\n", r.Client, r.Server, r.Reason)
		}
	}
	return errors.Join(t.Flush(), failed)
}

func newClusterServe() *cobra.Command {
	return &cobra.Command{
		Use: "serve ADDRESS", Short: "send back what comes, in a pod of check", Hidden: true,
		Long: "Sends back what comes, in a pod of exn-tun cluster check.",
		Args: command.Arguments,
		RunE: func(c *cobra.Command, args []string) error {
			l, err := clustercheck.Listen(args[0])
			if err != nil {
				return err
			}
			return clustercheck.Serve(c.Context(), l)
		},
	}
}

func newClusterDial() *cobra.Command {
	file, within := "", time.Minute
	c := &cobra.Command{
		Use: "dial ADDRESS", Short: "connect to serve, in a pod of check", Hidden: true,
		Long: "Connects to exn-tun cluster serve, in a pod of exn-tun cluster check.",
		Args: command.Arguments,
		RunE: func(c *cobra.Command, args []string) error { return dialCluster(c.Context(), args[0], file, within) },
	}
	c.Flags().StringVar(&file, "result", "/dev/stdout", "`FILE` for the result")
	cli.Duration(c.Flags(), &within, "within", time.Second, time.Hour, "`TIME` that the connection has to become direct (1m)")
	return c
}

// dialCluster writes what a client saw, or the error, into a file that is there.
func dialCluster(ctx context.Context, address, file string, within time.Duration) error {
	o, err := clustercheck.Dial(ctx, address, within)
	text, jsonErr := json.Marshal(o)
	if err != nil {
		text = []byte(err.Error())
	}
	f, fileErr := os.OpenFile(file, os.O_WRONLY, 0)
	if fileErr == nil {
		_, writeErr := f.Write(append(text, '\n'))
		fileErr = errors.Join(writeErr, f.Close())
	}
	return errors.Join(err, jsonErr, fileErr)
}
