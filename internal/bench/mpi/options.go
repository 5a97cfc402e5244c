package mpi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"exnet/internal/cli"
)

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

// sharedMemory is the path of the MPI's own shared memory, which ranks of one host have.
const sharedMemory = "shm"

// defaultPaths are measured unless the user names others, the control first.
var defaultPaths = []string{"lo", "veth", "exn", "ds", "ds-exn"}

// Paths are those that can be measured.
var Paths = slices.Concat(defaultPaths, []string{sharedMemory})

// Bounds of the options.
const (
	maxRuns     = 1000
	maxDuration = time.Hour
	maxSize     = 64 << 20
)

// Define defines the flags of "dsbench mpi" and returns what they will say.
func Define(fs *pflag.FlagSet) *Options {
	o := &Options{duration: 100 * time.Millisecond, runs: 5}
	fs.StringVar(&o.pathList, "paths", strings.Join(defaultPaths, ","), "`LIST` paths ("+strings.Join(defaultPaths, ",")+")")
	fs.StringVar(&o.mpiList, "mpi", "", "`LIST` openmpi, mpich (all that are installed)")
	fs.StringVar(&o.sizeList, "size", "8,64,1k,8k,64k,512k", "`LIST` bytes of a message")
	cli.Duration(fs, &o.duration, "duration", time.Millisecond, maxDuration, "`TIME` of a figure (100ms)")
	cli.Number(fs, &o.runs, "runs", 1, maxRuns, "`N` runs of each path (5)")
	fs.StringVar(&o.exnRun, "exn-run", "", "`PATH` exn-run (beside dsbench, or in PATH)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *Options) Check() (err error) {
	o.paths = strings.Split(o.pathList, ",")
	for _, p := range o.paths {
		if !slices.Contains(Paths, p) {
			return fmt.Errorf("--paths: unknown path %q for MPI: choose from %s", p, strings.Join(Paths, ", "))
		}
	}
	if o.mpiList != "" {
		o.mpis = strings.Split(o.mpiList, ",")
	}
	for _, m := range o.mpis {
		if !slices.ContainsFunc(libraries, func(l library) bool { return l.name == m }) {
			return fmt.Errorf("--mpi: unknown %q: choose from openmpi, mpich", m)
		}
	}
	for _, s := range strings.Split(o.sizeList, ",") {
		n, err := cli.ParseSize(s, 1, maxSize)
		if err != nil {
			return fmt.Errorf("--size: %w", err)
		}
		o.sizes = append(o.sizes, n)
	}
	return o.findExnRun()
}

func (o *Options) findExnRun() (err error) {
	if !slices.ContainsFunc(o.paths, direct) {
		return nil
	}
	if o.exnRun == "" {
		o.exnRun = "exn-run"
		if self, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(self), "exn-run")
			if _, err := os.Stat(beside); err == nil {
				o.exnRun = beside
			}
		}
	}
	if o.exnRun, err = exec.LookPath(o.exnRun); err == nil {
		o.exnRun, err = filepath.Abs(o.exnRun)
	}
	if err != nil {
		return fmt.Errorf("--exn-run: %w: go build ./cmd/exn-run, and give its path", err)
	}
	return nil
}

// direct reports whether a path is direct sockets.
func direct(path string) bool { return strings.HasPrefix(path, "ds") }

// library is an implementation of MPI.
type library struct {
	name, compiler, mpirun string
	packages               string // of Debian
	tcp, shm               string // the argument that keeps ranks to TCP, and what they have in its place for shared memory
	// argv is how its mpirun starts a rank on each of two hosts, by rsh.
	argv func(rsh, device string, hosts [2]string) []string
}

var libraries = []library{
	{"openmpi", "mpicc.openmpi", "mpirun.openmpi", "openmpi-bin libopenmpi-dev", "tcp,self", "vader,self", func(rsh, device string, hosts [2]string) []string {
		where := hosts[0] + ":1," + hosts[1] + ":1"
		if hosts[0] == hosts[1] {
			where = hosts[0] + ":2"
		}
		return []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "node", "-n", "2", "--host", where,
			"--mca", "plm_rsh_agent", rsh, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
			"--mca", "btl_tcp_if_include", device, "--mca", "oob_tcp_if_include", device, "--mca", "mpi_event_tick_rate", "1"} // docs/mpi.md
	}},
	{"mpich", "mpicc.mpich", "mpirun.mpich", "mpich libmpich-dev", "UCX_TLS=tcp,self", "UCX_TLS=posix,self", func(rsh, device string, hosts [2]string) []string {
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
