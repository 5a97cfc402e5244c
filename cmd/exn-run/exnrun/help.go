package exnrun

import (
	"exnet/internal/cli"
	"exnet/internal/version"

	"github.com/spf13/pflag"
)

const (
	helpUsage = `exn-run [flags] [--] PROGRAM [ARGUMENT...]
exn-run [flags] --print-env
exn-run --check-rules FILE
exn-run --version`

	helpText = `Runs a program on direct sockets: its TCP connections to programs that use them
too go through shared memory instead of the kernel. The program is unchanged and
does not notice. Everything else stays on TCP.`

	helpExamples = `exn-run --loopback redis-server
exn-run --loopback redis-benchmark
    both ends on this host, without root and without exn0
exn-run -- iperf3 -s
exn-run --node 2 -- iperf3 -c 10.2.0.1
    over a fabric whose nodes are up (exn-tun up); the client is in the network
    namespace of node 2
exn-run --loopback --explain -- curl http://localhost/
    what was chosen for each connection, and why
exn-run --profile run -- iperf3 -c 10.2.0.1
    who sent how much to whom, in run/profile.json
exn-run --rules my.rules -- python3 app.py
    by program, role, address and port; see docs/exn-run.md
exn-run --libfabric mpirun -n 2 ./program
    Open MPI over libfabric's provider exnet, with no node up; see
    docs/libfabric.md
eval "$(exn-run --loopback --print-env)"
    for everything that this shell starts from now on`

	helpEnd = `Programs that the library cannot reach (setuid, old Go) run on TCP, and
exn-run says so. The program replaces exn-run and has its process ID, unless
exn-run stays with it (--explain, --verbose, --stats, -o, --profile,
--libfabric). Exit status: the program's; 125 exn-run itself failed, 126 the
program cannot be run, 127 it was not found.`
)

// describeCommand describes exn-run for its help and its man page.
func describeCommand(fs *pflag.FlagSet) cli.Description {
	return cli.Description{
		Name: "exn-run", Short: "run a program on direct sockets", Usage: helpUsage, Long: helpText,
		Examples: helpExamples, End: helpEnd, Flags: fs, Version: version.String(),
		Values: map[string]string{ // exn-tun knows them, and ends with a line for cobra's scripts
			"node":       `exn-tun __completeNoDesc status --node "" | sed \$d`,
			"fabric":     `exn-tun __completeNoDesc status --fabric "" | sed \$d`,
			"completion": `printf "%s\n" bash fish zsh`,
		},
	}
}
