package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"exnet/internal/cli"
	"exnet/internal/version"

	"github.com/spf13/cobra"
)

func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man [DIRECTORY]", Short: "write the man pages", Hidden: true,
		Long: "Prints the man page of this command, or writes those of all its commands to a directory.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("unexpected argument %q", args[1])
			}
			if len(args) == 1 && args[0] == "" {
				return cli.Usagef("the directory's name is empty: give one, or leave it out")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprint(c.OutOrStdout(), manPage(root))
				return err
			}
			return writePages(root, args[0])
		},
	}
}

// writePages writes the pages of c and of its commands.
func writePages(c *cobra.Command, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(manPage(c)), 0o644); err != nil {
		return err
	}
	for _, sub := range shown(c) {
		if err := writePages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// pageName is exn-tun-up for exn-tun up.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command.
func manPage(c *cobra.Command) string {
	p := cli.NewPage(pageName(c), c.Short)
	p.Section("SYNOPSIS", strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(usage(c), "Usage: "), "\n       ", "\n"), "\n"))
	if c.HasAvailableSubCommands() {
		var list strings.Builder
		for _, s := range shown(c) {
			fmt.Fprintf(&list, "%-12s %s\n", s.Name(), s.Short)
		}
		p.Section("DESCRIPTION", c.Long)
		p.Section("COMMANDS", list.String())
	} else {
		p.Section("DESCRIPTION", c.Long)
	}
	p.Section("EXAMPLES", c.Example)
	p.Options(localFlags(c))
	p.Section("NOTES", c.Annotations[EndKey])
	var also []string
	if c.HasParent() {
		also = append(also, pageName(c.Parent())+"(1)")
	}
	for _, s := range shown(c) {
		also = append(also, pageName(s)+"(1)")
	}
	p.Section("SEE ALSO", strings.Join(also, ", "))
	return p.String(version.String())
}
