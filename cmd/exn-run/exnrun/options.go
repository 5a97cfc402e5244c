package exnrun

import (
	"exnet/internal/cli"

	"github.com/spf13/pflag"
)

// options is what the command line asks for.
type options struct {
	rules      string // file; "": none
	checkRules string // file to check only; "": run
	node       string // node ID or namespace; "": this one's
	fabric     string
	dir        string
	loopback   bool
	libfabric  bool   // with a node for programs of libfabric, and no direct sockets
	reserve    string // pattern of traffic whose routes are the program's; "": none
	wait       bool
	explain    bool   // say at the end what was chosen
	verbose    bool   // say it at once, too
	stats      bool   // with counters
	report     string // file for JSON lines; "": none
	profile    string // directory for who sent how much to whom; "": none
	printEnv   bool
	library    string // "": built from the source in this program
	version    bool
	man        bool
	completion string // shell; "": none
	argv       []string
}

// staysAround reports whether exn-run has to stay around while the program runs.
func (o options) staysAround() bool {
	return o.explain || o.verbose || o.stats || o.report != "" || o.profile != ""
}

// defineFlags defines the flags.
func (o *options) defineFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.loopback, "loopback", false, "include connections to 127.0.0.0/8 and ::1; starts a broker if none serves this network namespace")
	fs.BoolVar(&o.libfabric, "libfabric", false, "no direct sockets, but a node for programs of libfabric, which ends with the program; Open MPI uses it")
	fs.StringVar(&o.rules, "rules", "", "`FILE` rules: which connections may be direct")
	fs.StringVar(&o.node, "node", "", "`NODE` in the network namespace of a node: its ID, or the name or path of its namespace (takes root)")
	fs.StringVar(&o.reserve, "reserve", "", "`PATTERN` routes of its own for this traffic until the program ends: a file or a primitive of exn-tun route reserve")
	fs.StringVar(&o.fabric, "fabric", "lab", "`NAME` fabric of --node and --reserve (lab)")
	fs.StringVar(&o.dir, "dir", "", "`DIR` directory of that fabric")
	fs.BoolVar(&o.wait, "wait", false, "wait until the node is up, and a broker serves this network namespace; fails after 30s")
	fs.BoolVar(&o.explain, "explain", false, "say at the end what was chosen for each connection, and why")
	fs.BoolVar(&o.verbose, "verbose", false, "as --explain, and also at once when a connection is made or changes")
	fs.BoolVar(&o.stats, "stats", false, "as --explain, with all counters")
	fs.StringVarP(&o.report, "output", "o", "", "`FILE` write the same there as JSON, one object per line, when the program has ended")
	fs.StringVar(&o.report, "report", "", "the older name of --output")
	_ = fs.MarkHidden("report") // it fails for a flag that is not there
	fs.StringVar(&o.profile, "profile", "", "`DIR` write there who sent how much to whom, by process; every exn-run with this DIR adds to it")
	fs.BoolVar(&o.printEnv, "print-env", false, "print the variables for a shell, and run nothing")
	fs.StringVar(&o.checkRules, "check-rules", "", "`FILE` check rules, and run nothing")
	fs.StringVar(&o.library, "library", "", "`FILE` use this library instead of exn-run's own")
	cli.LogFlags(fs, "error leaves out warnings, such as that connections stay on TCP")
	fs.BoolVar(&o.version, "version", false, "print the version")
	fs.StringVar(&o.completion, "completion", "", "`SHELL` print completions for bash, fish or zsh")
	fs.BoolVar(&o.man, "man", false, "print the man page")
}

// parseOptions reads the arguments. The error is pflag.ErrHelp if they ask for
// help, and else says what is wrong with them.
func parseOptions(args []string) (o options, fs *pflag.FlagSet, err error) {
	fs = pflag.NewFlagSet("exn-run", pflag.ContinueOnError)
	fs.SetInterspersed(false) // what follows the program is the program's
	fs.Usage = func() {}
	o.defineFlags(fs)
	cli.Tidy(fs)
	if err := fs.Parse(args); err != nil {
		return o, fs, cli.FlagError(fs, err)
	}
	o.argv = fs.Args()
	asks := o.version || o.man || o.completion != ""
	alone := asks || o.printEnv || o.checkRules != ""
	switch {
	case len(o.argv) == 0 && !alone:
		return o, fs, cli.Usagef("name a program to run")
	case len(o.argv) > 0 && alone:
		return o, fs, cli.Usagef("--print-env, --check-rules, --version, --completion and --man run no program")
	case o.libfabric && runLibfabric == nil:
		return o, fs, cli.Usagef("--libfabric: this exn-run was built without package ports")
	case o.libfabric && (o.loopback || o.rules != "" || o.node != "" || o.wait || o.staysAround() || o.printEnv || o.library != ""):
		return o, fs, cli.Usagef("--libfabric has nothing to do with direct sockets: leave out their flags")
	case o.printEnv && o.reserve != "":
		return o, fs, cli.Usagef("--print-env runs no program: leave out --reserve")
	case o.printEnv && o.staysAround():
		return o, fs, cli.Usagef("--print-env runs no program: leave out --explain, --verbose, --stats, --output and --profile")
	}
	return o, fs, nil
}
