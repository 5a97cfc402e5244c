package bench

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"exnet/cmd/dsbench/internal/report"
	"exnet/internal/cli"
	"exnet/internal/infile"
	"exnet/internal/outfile"
)

func newReadme() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use: "readme [flags] REPORT.json FILE.md", Short: "write a report's tables into a Markdown file",
		Long: `Writes the tables of a report between two marks in a Markdown file, so that the
file says what was measured. gzip may have compressed the report. Each mark is a
line of its own:

  <!-- begin: dsbench readme -->
  <!-- end: dsbench readme -->

Exit status: 0 done, 1 failed or, with --check, the file is out of date, 2 wrong
usage.`,
		Example: `dsbench readme report.json README.md
dsbench readme --check docs/results/2026-11-25-9c83051.json.gz README.md`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usagef("readme needs a report's JSON and a text, not %d files", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return runReadme(args[0], args[1], check, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing: fail if the text is not up to date")
	return c
}

// relativePath is how a file names another one; both may be named by whole paths or not.
func relativePath(from, to string) (string, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	return filepath.Rel(filepath.Dir(from), to)
}

// runReadme does dsbench readme.
func runReadme(from, to string, check bool, stdout io.Writer) error {
	d, err := report.Read(from)
	if err != nil {
		return err
	}
	old, err := infile.Read(to)
	if err != nil {
		return err
	}
	source, err := relativePath(to, from)
	if err != nil {
		return err
	}
	text, err := report.ReplaceTables(string(old), d, filepath.ToSlash(source))
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	switch {
	case text == string(old):
		fmt.Fprintf(stdout, "%s matches %s\n", to, from)
		return nil
	case check:
		return fmt.Errorf("%s does not match %s: run dsbench readme %s %s", to, from, from, to)
	}
	if err := outfile.WriteText(to, []byte(text)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s is up to date\n", to)
	return nil
}
