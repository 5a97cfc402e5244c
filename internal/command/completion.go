package command

import (
	"strings"

	"exnet/internal/cli"

	"github.com/spf13/cobra"
)

// shells are the shells that completions exist for.
var shells = []string{"bash", "fish", "zsh"}

func newCompletion(root *cobra.Command) *cobra.Command {
	name := root.Name()
	return &cobra.Command{
		Use: "completion bash|fish|zsh", Short: "print completions for a shell",
		Long: "Prints a script that lets a shell complete commands and flags.",
		Example: "source <(" + name + " completion bash)\n    for this bash; needs the package bash-completion\n" +
			name + " completion fish > ~/.config/fish/completions/" + name + ".fish\n" +
			name + " completion zsh > \"${fpath[1]}/_" + name + "\"",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			out := c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			}
			return cli.Usagef("there are no completions for %q: name one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}
