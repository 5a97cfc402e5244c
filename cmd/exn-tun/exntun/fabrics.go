package exntun

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"exnet/internal/command"
	"exnet/node/control"

	"github.com/spf13/cobra"
)

func newFabrics() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "fabrics [flags]", Short: "list the fabrics of this host and their nodes",
		Long: "Lists the fabrics whose nodes are up on this host: those of root, and those of\nthe user who asks.",
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runFabrics(c.OutOrStdout(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON array with an object for each fabric")
	return c
}

func runFabrics(w io.Writer, asJSON bool) error {
	all, err := control.Fabrics()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no fabric has a node on this host: start one with exn-tun up")
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "fabric\tnodes\tdirectory")
	for _, f := range all {
		nodes := strings.Trim(fmt.Sprint(f.Nodes), "[]")
		fmt.Fprintf(tw, "%s\t%s\t%s\n", printable(f.Fabric), choose(f.Error == "", nodes, f.Error), f.Dir)
	}
	return tw.Flush()
}
