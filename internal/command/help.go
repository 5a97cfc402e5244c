package command

import (
	"fmt"
	"strings"

	"exnet/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help returns what "COMMAND -h" prints.
func Help(c *cobra.Command) string {
	var b strings.Builder
	subs := shown(c)
	if len(subs) > 0 {
		fmt.Fprintf(&b, "%s\n\n", c.Long)
	}
	b.WriteString(usage(c))
	if len(subs) > 0 {
		width := 0
		for _, s := range subs {
			width = max(width, len(s.Name()))
		}
		b.WriteString("\nCommands:\n")
		for _, s := range subs {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name(), s.Short)
		}
		fmt.Fprintf(&b, "  %s COMMAND -h explains one\n", c.CommandPath())
	} else if c.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", c.Long)
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", indent(c.Example))
	}
	b.WriteString(cli.Flags(localFlags(c), heading(c)))
	if end := c.Annotations[EndKey]; end != "" {
		fmt.Fprintf(&b, "\n%s\n", end)
	}
	return cli.WithDocs(b.String())
}

// Keys of a command's annotations.
const (
	// EndKey has the text at the end of the help.
	EndKey = "end"
	// UsageKey has usage lines, without the name of the program, instead of that made from Use.
	UsageKey = "usage"
)

// localFlags returns the flags of c that it does not inherit.
func localFlags(c *cobra.Command) *pflag.FlagSet {
	cli.Tidy(c.Flags())
	cli.Tidy(c.PersistentFlags())
	return c.LocalFlags()
}

// heading returns the heading of flags without a group.
func heading(c *cobra.Command) string {
	if c.HasParent() {
		return "Flags"
	}
	return "Flags of every command"
}

// usage writes the usage lines.
func usage(c *cobra.Command) string {
	lines := []string{c.UseLine()}
	if own := c.Annotations[UsageKey]; own != "" {
		lines = strings.Split(own, "\n")
		for i := range lines {
			lines[i] = c.Root().Name() + " " + lines[i]
		}
	}
	return "Usage: " + strings.Join(lines, "\n       ") + "\n"
}

// indent moves lines two columns to the right.
func indent(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "  " + l
		}
	}
	return strings.Join(lines, "\n")
}
