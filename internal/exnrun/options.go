package exnrun

import (
	"errors"
	"flag"
	"io"
)

// options is what the command line asks for.
type options struct {
	rules      string // file; "": none
	checkRules string // file to check only; "": run
	node       string // node ID or namespace; "": this one's
	fabric     string
	dir        string
	loopback   bool
	explain    bool   // say at the end what was chosen
	verbose    bool   // say it at once, too
	stats      bool   // with counters
	report     string // file for JSON lines; "": none
	printEnv   bool
	library    string // "": built from the source in this program
	argv       []string
}

// stays reports whether exn-run has to stay around while the program runs.
func (o options) stays() bool { return o.explain || o.verbose || o.stats || o.report != "" }

// parseOptions reads the arguments. The error is flag.ErrHelp if they ask for
// help, and else says what is wrong with them.
func parseOptions(args []string) (o options, err error) {
	fs := flag.NewFlagSet("exn-run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.rules, "rules", "", "")
	fs.StringVar(&o.checkRules, "check-rules", "", "")
	fs.StringVar(&o.node, "node", "", "")
	fs.StringVar(&o.fabric, "fabric", "lab", "")
	fs.StringVar(&o.dir, "dir", "", "")
	fs.BoolVar(&o.loopback, "loopback", false, "")
	fs.BoolVar(&o.explain, "explain", false, "")
	fs.BoolVar(&o.verbose, "verbose", false, "")
	fs.BoolVar(&o.stats, "stats", false, "")
	fs.StringVar(&o.report, "report", "", "")
	fs.BoolVar(&o.printEnv, "print-env", false, "")
	fs.StringVar(&o.library, "library", "", "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.argv = fs.Args()
	alone := o.printEnv || o.checkRules != ""
	switch {
	case len(o.argv) == 0 && !alone:
		return o, errors.New("name a program to run")
	case len(o.argv) > 0 && alone:
		return o, errors.New("--print-env and --check-rules run no program")
	case o.printEnv && o.stays():
		return o, errors.New("--print-env runs no program: leave out --explain, --verbose, --stats and --report")
	}
	return o, nil
}
