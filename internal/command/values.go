package command

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Values lets shells complete the values of the flags of these names, in all commands below c that
// have them.
func Values(c *cobra.Command, values map[string]cobra.CompletionFunc) {
	eachCommand(c, func(c *cobra.Command) {
		for name, f := range values {
			if c.Flags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, f) // an error says that there is one already
			}
		}
	})
}

// OneOf completes one of these values.
func OneOf(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// ListOf completes the last of some of these values, which commas separate.
func ListOf(values ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		taken := strings.Split(before, ",")
		var all []string
		for _, v := range values {
			if !slices.Contains(taken, v) {
				all = append(all, before+v)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// Congestion completes the TCP congestion controls that this kernel has loaded.
func Congestion(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control") // what cannot be read has no names to offer
	return strings.Fields(string(all)), cobra.ShellCompDirectiveNoFileComp
}

// Namespaces completes the network namespaces of ip netns; a path may be typed.
func Namespaces(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	entries, _ := os.ReadDir("/run/netns") // without one there are none
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, cobra.ShellCompDirectiveDefault
}
