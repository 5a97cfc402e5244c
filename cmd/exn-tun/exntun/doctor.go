package exntun

import (
	"encoding/json"
	"errors"

	"exnet/cmd/exn-tun/internal/doctor"
	"exnet/internal/command"

	"github.com/spf13/cobra"
)

// errSick says that the report has a failure. The report says which.
var errSick = errors.New("a requirement is missing")

func newDoctor() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "doctor [flags]", Short: "examine this host: what is missing, what would speed it up",
		Long: `Looks at this host and says what exnet needs that is not there, and what would
make it faster: what was found, what to change, and why. It changes nothing.

Exit status: 0 nothing is missing, 1 something does not work, 2 wrong usage.`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runDoctor(programOf(c), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON array instead of text")
	return c
}

func runDoctor(p program, asJSON bool) error {
	host, err := doctor.This()
	if err != nil {
		return err
	}
	findings := doctor.Examine(host)
	if asJSON {
		e := json.NewEncoder(p.stdout)
		e.SetIndent("", "  ")
		err = e.Encode(findings)
	} else {
		err = doctor.Print(p.stdout, findings)
	}
	if err == nil && doctor.Worst(findings) == doctor.Fail {
		err = errSick
	}
	return err
}
