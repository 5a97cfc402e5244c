package command_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/cli"
	"exnet/internal/clitest"
	"exnet/internal/command"
	"exnet/napi"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tree returns a program with two commands.
func tree() *cobra.Command {
	root := command.New("prog", "do things", "Prog does things.")
	var loud bool
	var mode napi.Mode
	var coalesce napi.Coalesce
	up := &cobra.Command{
		Use: "up [flags]", Short: "go up", Long: "Goes up.", Example: "prog up --loud",
		Annotations: map[string]string{command.EndKey: "The end.", command.UsageKey: "up [flags]\nup -- COMMAND"},
		RunE: func(c *cobra.Command, args []string) error {
			command.Logger(c).Debug("going up", "reason", errors.New("sched: no wings"))
			if loud {
				return errors.New("tun: too\nloud")
			}
			if len(args) > 0 {
				c.Println("up", args)
			}
			return nil
		},
	}
	up.Flags().BoolVar(&loud, "loud", false, "make noise")
	cli.Group(up.Flags(), "Receiving", func(fs *pflag.FlagSet) { command.ReceiveFlags(fs, &mode, &coalesce) })
	down := &cobra.Command{Use: "down", Short: "go down", Long: "Goes down.", Args: command.NoArgs, RunE: func(*cobra.Command, []string) error { return cli.ExitStatus(9) }}
	root.AddCommand(up, down)
	return root
}

func run(args string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = command.Run(context.Background(), tree(), strings.Fields(args), &out, &errs)
	return status, out.String(), errs.String()
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args           string
		status         int
		stdout, stderr string
	}{
		{"", 2, "", "Usage: prog COMMAND [flags]\n"},
		{"-h", 0, "\nCommands:\n  up          go up\n  down        go down\n  version     print the version\n", ""},
		{"help up", 0, "Usage: prog up [flags]\n       prog up -- COMMAND\n", ""},
		{"up -h", 0, "\nReceiving:\n  --mode MODE          how frames are received: napi, interrupt or busy (napi)\n", ""},
		{"up --mode fast --help", 2, "", "prog up: --mode: "},
		{"version", 0, "prog ", ""},
		{"--version", 0, "prog ", ""},
		{"version now", 2, "", `prog version: unexpected argument "now" (see prog version -h)` + "\n"},
		{"up x -- --y", 0, "up [x --y]\n", ""},
		{"up --loud", 1, "", "prog up: too; loud\n"},
		{"up --log-format json --loud", 1, "", `"level":"ERROR","msg":"too; loud","command":"prog up"}` + "\n"},
		{"up --log-level debug", 0, "", `msg="going up" reason="no wings"`},
		{"--log-level debug --log-format json up", 0, "", `"msg":"going up","reason":"no wings"`},
		{"up --log-level loud", 2, "", `prog up: --log-level: "loud": use debug, info, warn, error (see prog up -h)` + "\n"},
		{"up --laud", 2, "", "prog up: there is no flag --laud: did you mean --loud? (see prog up -h)\n"},
		{"down", 9, "", ""},
		{"dwon", 2, "", `prog: unknown command "dwon": did you mean down? (see prog -h)` + "\n"},
		{"zzz", 2, "", `prog: unknown command "zzz": choose from up, down, version, completion (see prog -h)` + "\n"},
		{"zzz --help", 2, "", `prog: unknown command "zzz": choose from`},
		{"--help zzz", 2, "", `prog: unknown command "zzz": choose from`},
		{"zzz --laud", 2, "", `prog: unknown command "zzz": choose from`},
		{"help zzz", 2, "", `prog help: unknown command "zzz": choose from`},
		{"completion", 2, "", "prog completion: name one shell: bash, fish, zsh"},
		{"completion csh", 2, "", `there are no completions for "csh"`},
		{"completion bash", 0, "__start_prog", ""},
		{"completion fish", 0, "complete -c prog", ""},
		{"completion zsh", 0, "#compdef prog", ""},
		{"__complete up --coal", 0, "--coalesce-usecs\thold back", "directive"},
		{"__complete u", 0, "up\tgo up", "directive"},
		{"man a b", 2, "", `unexpected argument "b"`},
		{"man /no/such/dir", 1, "", "no such file or directory"},
		{"man", 0, ".SH COMMANDS\n", ""},
		{strings.Repeat("x", 1<<16), 2, "", "unknown command"},
	} {
		status, stdout, stderr := run(c.args)
		if status != c.status || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || (c.stdout == "") != (stdout == "") || (c.stderr == "") != (stderr == "") {
			t.Errorf("%.60s: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
}

func TestTree(t *testing.T) { clitest.Tree(t, tree(), 80) }

// The pages are written, and man(1), where it is, finds nothing wrong with them.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if status, stdout, stderr := run("man " + dir); status != 0 || stdout+stderr != "" {
		t.Fatal(status, stdout, stderr)
	}
	for _, name := range []string{"prog.1", "prog-up.1", "prog-down.1", "prog-version.1", "prog-completion.1"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		if _, err := exec.LookPath("man"); err != nil {
			continue
		}
		cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path)
		cmd.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Run(); err != nil || errs.Len() > 0 {
			t.Errorf("%s: %v, %s", name, err, &errs)
		}
	}
}
