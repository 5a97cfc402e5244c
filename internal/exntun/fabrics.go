package exntun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/command"
	"exnet/internal/control"

	"github.com/spf13/cobra"
)

// fabricLine is a fabric of this host.
type fabricLine struct {
	Fabric string          `json:"fabric"`
	Dir    string          `json:"dir"`
	Nodes  []fabric.NodeID `json:"nodes"`           // that are up
	Error  string          `json:"error,omitempty"` // why it cannot be read
}

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
	all, err := fabrics(fabricBases())
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
		fmt.Fprintf(tw, "%s\t%s\t%s\n", printable(f.Fabric), pick(f.Error == "", nodes, f.Error), f.Dir)
	}
	return tw.Flush()
}

// fabricBases returns the directories that hold the directories of fabrics.
func fabricBases() (bases []string) {
	bases = append(bases, "/run/exn")
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		bases = append(bases, filepath.Join(dir, "exn"))
	}
	return bases
}

// fabrics returns the fabrics that have nodes or cannot be read.
func fabrics(bases []string) ([]fabricLine, error) {
	all := []fabricLine{}
	for _, base := range bases {
		entries, err := os.ReadDir(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() || e.Name() == "ds" || emp.CheckName(e.Name()) != nil { // ds: the brokers' sockets
				continue
			}
			f := fabricLine{Fabric: e.Name(), Dir: filepath.Join(base, e.Name()), Nodes: []fabric.NodeID{}}
			nodes, err := control.Nodes(f.Dir)
			if err != nil {
				f.Error = "cannot be read: permission denied"
				if !errors.Is(err, fs.ErrPermission) {
					f.Error = err.Error()
				}
			}
			for _, n := range nodes {
				f.Nodes = append(f.Nodes, n.Node)
			}
			if len(f.Nodes) > 0 || f.Error != "" {
				all = append(all, f)
			}
		}
	}
	return all, nil
}
