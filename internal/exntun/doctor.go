package exntun

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"

	"exnet/internal/doctor"
)

const doctorHelpText = `Usage: exn-tun doctor [--json]

Looks at this host and says what exnet needs that is not there, and what would
make it faster: what was found, what to change, and why. It changes nothing.

Exit status: 0 nothing is missing, 1 something does not work, 2 wrong usage.
`

// errSick says that the report has a failure in it, which says what.
var errSick = errors.New("something that is needed is missing")

func runDoctor(_ context.Context, p program, args []string) error {
	fs := flag.NewFlagSet("doctor", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, doctorHelpText)
		return nil
	} else if err != nil {
		return usageError{err}
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	host, err := doctor.This()
	if err != nil {
		return err
	}
	findings := doctor.Examine(host)
	if *asJSON {
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
