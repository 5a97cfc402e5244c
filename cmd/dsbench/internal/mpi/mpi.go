package mpi

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/internal/cli"
	"exnet/internal/command"
)

// Measure is the command "dsbench mpi".
var Measure = measure.Measure{
	Name: "mpi", About: "measure MPI between two ranks, over all paths",
	Long: `Measures MPI between two ranks as the OSU Micro-Benchmarks do: latency (half a
round trip), bandwidth and message rate (windows of 64 messages), in interleaved
runs. Needs root, and the compiler of each MPI.

Paths: lo, veth, exn (TCP over exn0), ds (exn-run --loopback), ds-exn (exn-run
between two nodes). On these two a run without a direct connection does not count
and is repeated. shm is the MPI's own shared memory, without TCP. Open MPI alone has
ofi (libfabric's provider exnet with ofi_rxm, by exn-run --libfabric) and ofi-tcp
(libfabric's own provider tcp with ofi_rxm, on loopback).`,
	Examples: `dsbench mpi
    Open MPI and MPICH, if installed, 5 runs on each path
dsbench mpi --mpi openmpi --paths lo,ds,shm --size 8,64k --json
    three paths, as JSON
dsbench mpi --mpi openmpi --paths shm,ofi,ofi-tcp,veth --size 8,1m
    libfabric beside shared memory and TCP`,
	Values: map[string]cobra.CompletionFunc{"paths": command.ListOf(pathNames...), "mpi": command.ListOf(mpiNames...)},
	Define: func(fs *pflag.FlagSet) measure.Run { return Define(fs) },
}

// Options is what the command line of "dsbench mpi" asks for.
type Options struct {
	pathList, mpiList, sizeList string
	paths, mpis                 []string
	sizes                       []int
	duration                    time.Duration
	runs                        int
	exnRun                      string
	json                        bool
}

const (
	// sharedMemory is the path of the MPI's own shared memory, which ranks of one host have.
	sharedMemory = "shm"
	// exnetOFI is the path of libfabric's provider exnet: exn-run has the node.
	exnetOFI = "ofi"
	// tcpOFI is the path of libfabric's provider tcp.
	tcpOFI = "ofi-tcp"
)

// providers are the paths of libfabric, and what they have for mtl_ofi_provider_include; a shell
// reads it (exn-rsh).
var providers = map[string]string{exnetOFI: "'exnet;ofi_rxm'", tcpOFI: "'tcp;ofi_rxm'"}

// defaultPaths are measured unless the user names others, the control first.
var defaultPaths = []string{"lo", "veth", "exn", "ds", "ds-exn"}

// pathNames are those that can be measured.
var pathNames = slices.Concat(defaultPaths, []string{sharedMemory, exnetOFI, tcpOFI})

var mpiNames = []string{"openmpi", "mpich"} // those of libraries

// maxSize bounds --size.
const maxSize = 64 << 20

// Define defines the flags of "dsbench mpi" and returns what they will say.
func Define(fs *pflag.FlagSet) *Options {
	o := &Options{duration: 100 * time.Millisecond, runs: 5}
	fs.StringVar(&o.pathList, "paths", strings.Join(defaultPaths, ","), "`LIST` paths ("+strings.Join(defaultPaths, ",")+")")
	fs.StringVar(&o.mpiList, "mpi", "", "`LIST` openmpi, mpich (all that are installed)")
	fs.StringVar(&o.sizeList, "size", "8,64,1k,8k,64k,512k", "`LIST` bytes of a message")
	cli.Duration(fs, &o.duration, "duration", time.Millisecond, measure.MaxDuration, "`TIME` of a figure (100ms)")
	cli.Number(fs, &o.runs, "runs", 1, measure.MaxRuns, "`N` runs of each path (5)")
	fs.StringVar(&o.exnRun, "exn-run", "", "`PATH` exn-run (beside dsbench, or in PATH)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *Options) Check() (err error) {
	if o.paths, err = measure.Choose("--paths", "path of MPI", o.pathList, pathNames); err != nil {
		return err
	}
	if o.mpis, err = measure.Choose("--mpi", "MPI", o.mpiList, mpiNames); err != nil {
		return err
	}
	if i := slices.IndexFunc(o.paths, func(p string) bool { return providers[p] != "" }); i >= 0 && len(o.mpis) > 0 && !slices.ContainsFunc(libraries, func(l library) bool {
		return l.carriedBy(o.paths[i]) && slices.Contains(o.mpis, l.name)
	}) {
		return fmt.Errorf("--paths: path %q takes openmpi: name it with --mpi, or leave the path out", o.paths[i])
	}
	for _, s := range strings.Split(o.sizeList, ",") {
		n, err := cli.ParseSize(s, 1, maxSize)
		if err != nil {
			return fmt.Errorf("--size: %w", err)
		}
		o.sizes = append(o.sizes, n)
	}
	if slices.ContainsFunc(o.paths, func(p string) bool { return isDirect(p) || p == exnetOFI }) {
		o.exnRun, err = measure.Command("exn-run", o.exnRun)
	}
	return err
}

// isDirect reports whether a path is direct sockets.
func isDirect(path string) bool { return strings.HasPrefix(path, "ds") }

// library is an implementation of MPI.
type library struct {
	name, compiler, mpirun string
	packages               string // of Debian
	tcp, shm               string // the argument that keeps ranks to TCP, and what they have in its place for shared memory
	// pml is the argument that libfabric takes the place of; "": it is not built for libfabric.
	pml string
	// tcpFlags are for TCP only (docs/mpi.md).
	tcpFlags []string
	// argv is how its mpirun starts a rank on each of two hosts, by rsh.
	argv func(rsh, device string, hosts [2]string) []string
}

// carriedBy returns whether the library has a path.
func (l library) carriedBy(path string) bool { return l.pml != "" || providers[path] == "" }

// command is what starts a rank on each of a path's hosts.
func (l library) command(rsh, exnRun string, s *site) []string {
	argv := l.argv(rsh, s.device, s.hosts)
	provider := providers[s.name]
	switch {
	case s.name == sharedMemory:
		argv[slices.Index(argv, l.tcp)] = l.shm
	case provider != "":
		i := slices.Index(argv, l.pml)
		argv = slices.Replace(argv, i, i+1, "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", provider)
	default:
		argv = append(argv, l.tcpFlags...)
	}
	if s.name == exnetOFI {
		argv = slices.Concat([]string{exnRun, "--libfabric"}, argv)
	}
	return argv
}

var libraries = []library{
	{"openmpi", "mpicc.openmpi", "mpirun.openmpi", "openmpi-bin libopenmpi-dev", "tcp,self", "vader,self", "ob1", []string{"--mca", "mpi_event_tick_rate", "1"}, func(rsh, device string, hosts [2]string) []string {
		where := hosts[0] + ":1," + hosts[1] + ":1"
		if hosts[0] == hosts[1] {
			where = hosts[0] + ":2"
		}
		return []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "node", "-n", "2", "--host", where,
			"--mca", "plm_rsh_agent", rsh, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
			"--mca", "btl_tcp_if_include", device, "--mca", "oob_tcp_if_include", device}
	}},
	{"mpich", "mpicc.mpich", "mpirun.mpich", "mpich libmpich-dev", "UCX_TLS=tcp,self", "UCX_TLS=posix,self", "", nil, func(rsh, device string, hosts [2]string) []string {
		where := hosts[0] + "," + hosts[1]
		if hosts[0] == hosts[1] {
			where = hosts[0] + ":2"
		}
		return []string{"env", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=" + device, "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", rsh,
			"-iface", device, "-hosts", where, "-n", "2"}
	}},
}

// missing says why the library cannot be measured here; "": it can.
func (l library) missing() string {
	for _, p := range []string{l.compiler, l.mpirun} {
		if _, err := exec.LookPath(p); err != nil {
			return p + " is not there: apt-get install " + l.packages
		}
	}
	return ""
}

var errRoot = errors.New("MPI is measured between namespaces: run as root")
