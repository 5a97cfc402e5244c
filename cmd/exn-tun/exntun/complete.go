package exntun

import (
	"fmt"
	"strings"

	"exnet/fabric/emp"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/node/control"

	"github.com/spf13/cobra"
)

// completeValues lets shells complete the values of flags, wherever a command has them, and the
// arguments of set.
func completeValues(c *cobra.Command) {
	command.Values(c, map[string]cobra.CompletionFunc{
		"fabric":           completeFabric,
		"node":             completeNode,
		"via":              completeNode,
		"dir":              completeDir,
		"netns":            command.Namespaces,
		"congestion":       command.Congestion,
		"conns-congestion": command.Congestion,
		"router":           command.OneOf(strings.Fields("refine minmax minsum dmodk smodk random alg3")...),
		"primitive":        command.OneOf(strings.Fields("bcast reduce allreduce alltoall ring halo2d halo3d")...),
		"topology":         cobra.FixedCompletions([]string{"torus:", "mesh:"}, cobra.ShellCompDirectiveNoSpace),
		"mode":             command.OneOf("napi", "interrupt", "busy"),
	})
	for _, sub := range c.Commands() {
		if sub.Name() == "set" {
			sub.ValidArgsFunction = completeSetting
		}
	}
}

// completeFabric returns the fabrics that have nodes on this host.
func completeFabric(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := control.Fabrics() // what cannot be read has no names to offer
	var names []string
	for _, f := range all {
		names = append(names, fmt.Sprintf("%s\t%s", f.Fabric, display.Count(len(f.Nodes), "node")))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeDir returns their directories; others may be typed.
func completeDir(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeNode returns the nodes of the fabric that the flags name.
func completeNode(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	name, dir := "lab", ""
	if f := c.Flags().Lookup("fabric"); f != nil && f.Changed {
		name = strings.TrimSpace(f.Value.String())
	}
	if f := c.Flags().Lookup("dir"); f != nil && f.Changed {
		dir = f.Value.String()
	}
	var err error
	if dir == "" {
		if dir, err = emp.DefaultDir(name); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	nodes, _ := control.Nodes(dir) // without a fabric there are none
	var ids []string
	for _, n := range nodes {
		ids = append(ids, fmt.Sprint(n.Node))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeSetting returns the settings of exn-tun set, those of two words with both.
func completeSetting(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 2 && args[0] == "link" {
		return []string{"up", "down"}, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) > 0 && args[0] == "link" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := []string{"mode=napi", "mode=interrupt", "mode=busy", "adaptive=on", "adaptive=off", "coalesce-usecs=", "coalesce-frames="}
	if len(args) == 0 {
		list = append(list, "link")
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	if strings.HasPrefix(begun, "coalesce") {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return list, directive
}
