package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cbuild"
	"exnet/internal/cli"
	"exnet/internal/display"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
	"exnet/node/rpc"
	"exnet/node/rpc/c"
	"exnet/ports"
	"exnet/ports/lib"
)

// Measure is the command "dsbench ports".
var Measure = measure.Measure{
	Name: "ports", About: "the NIC of programs: libvelo2 and librma2",
	Long: `Measures the NIC that a node serves to programs in C, between two processes at a
node of its own: VELO's half round trip, PUT and GET against memcpy, registration,
and the CPU time of a process that waits for a notification. Takes no root, and
a C compiler only where no package has installed the program that measures.`,
	Examples: `dsbench ports
    5 runs, the two ends on the first two CPUs
dsbench ports --cpus 0,2 --runs 10 --json
    other CPUs, as JSON`,
	Define: func(fs *pflag.FlagSet) measure.Run { return defineFlags(fs) },
}

// options is what the command line asks for.
type options struct {
	cpuList string
	cpus    tcpbench.Placement
	runs    int
	rounds  int
	json    bool
}

// Bounds of --rounds.
const (
	minRounds = 100
	maxRounds = 10_000_000
)

// defineFlags defines the flags and returns what they will say.
func defineFlags(fs *pflag.FlagSet) *options {
	o := &options{runs: 5, rounds: 100_000}
	fs.StringVar(&o.cpuList, "cpus", "", "`A,B` CPUs of the two ends (the first two allowed)")
	cli.Number(fs, &o.runs, "runs", 1, measure.MaxRuns, "`N` runs (5)")
	cli.Number(fs, &o.rounds, "rounds", minRounds, maxRounds, "`N` round trips of a run (100000)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *options) Check() (err error) {
	if o.cpus = measure.FirstCPUs(); o.cpuList == "" {
		return nil
	}
	if o.cpus, err = measure.CPUs(o.cpuList, ""); err != nil {
		return fmt.Errorf("--cpus: %w", err)
	}
	return nil
}

// figure is a line of the table. The program prints its name and the value.
type figure struct {
	name, measure, path string
	size                int
	unit                string
	control             string // the name of another figure
}

var figures = []figure{
	{"velo-64", "VELO half round trip", "port", 64, "us", ""},
	{"put-64", "PUT half round trip", "port", 64, "us", ""},
	{"memcpy", "copy", "memcpy", 65536, "GB/s", "memcpy"},
	{"put-64k", "PUT", "port", 65536, "GB/s", "memcpy"},
	{"get-64k", "GET", "port", 65536, "GB/s", "memcpy"},
	{"register-64", "register", "port", 64, "us", ""},
	{"register-1048576", "register", "port", 1 << 20, "us", ""},
	{"unregister-64", "unregister", "port", 64, "us", ""},
	{"unregister-1048576", "unregister", "port", 1 << 20, "us", ""},
	{"idle", "CPU while blocked", "port", 0, "us/s", ""},
}

// parts are the runs of the program, with the share of the rounds that each makes.
var parts = []struct {
	name  string
	share int
}{{"velo", 1}, {"rma", 50}, {"register", 200}, {"idle", 100}}

// Times of one run of the program.
const limit = 2 * time.Minute

// site is a node with its socket.
type site struct {
	server *ports.Server
	ln     *net.UnixListener
	end    context.CancelFunc
	all    sync.WaitGroup
	path   string
}

// startSite starts a node whose socket is in dir.
func startSite(ctx context.Context, dir string) (*site, error) {
	s := &site{server: ports.New(ports.Config{Node: 1}), path: filepath.Join(dir, "ports")}
	var err error
	if s.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.path, Net: "unixpacket"}); err != nil {
		return nil, err
	}
	ctx, s.end = context.WithCancel(ctx)
	s.all.Go(func() {
		for conn := range rpc.Accept(ctx, s.ln, time.Millisecond, func(error) {}) {
			s.all.Go(func() { _ = s.server.Process(conn) }) // the program says what is wrong
		}
	})
	return s, nil
}

func (s *site) close() error {
	s.end()
	err := s.ln.Close()
	s.server.Close()
	s.all.Wait()
	return err
}

// packaged is the name under which a package installs the program.
const packaged = "exn-pingpong"

// buildProgram returns the program: the installed one, or one that it compiles in dir.
func buildProgram(ctx context.Context, dir string) (string, error) {
	if path := cbuild.Installed(packaged); path != "" {
		return path, nil
	}
	return cbuild.Source{
		Name: "pingpong", Files: lib.Sources, Shared: c.Files,
		Flags: []string{"-std=gnu11", "-O2", "-fno-strict-aliasing", "-Iinclude", "-I."}, Libs: []string{"-lpthread"},
	}.BuildIn(ctx, dir)
}

// runPart runs a part of the program, and adds its figures to values. Of a figure that it prints
// several times the last counts: it is warm.
func (s *site) runPart(ctx context.Context, o *options, program, part string, rounds int, values map[string][]float64) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, part, strconv.Itoa(max(rounds, 3)))
	cmd.Env = append(os.Environ(), "EXN_PORTS="+s.path, "CPUS="+o.cpus.String())
	out, _, err := measure.Output(ctx, cmd, (*exec.Cmd).Start)
	if err != nil {
		return fmt.Errorf("pingpong %s: %w", part, err)
	}
	seen := make(map[string]float64)
	for line := range strings.Lines(out) {
		var name string
		var v float64
		if n, err := fmt.Sscanf(line, "%s %g", &name, &v); n == 2 && err == nil {
			seen[name] = v
		}
	}
	for name, v := range seen {
		values[name] = append(values[name], v)
	}
	return nil
}

// table has the figures.
var table = result.NewTable(" ", "measure -21", "bytes 8", "path -6", "median 8", "=unit -5", "min 8", "max 8", "spread 6", "times 7")

// Take measures what the options ask for, and prints it.
func (o *options) Take(ctx context.Context, env measure.Env) error {
	m, d := result.ThisMachine(time.Now()), coredist.Measure(o.cpus.Client, o.cpus.Server)
	values := make(map[string][]float64)
	if err := tempdir.Do("dsbench-ports", func(dir string) error { return o.measureAll(ctx, dir, values) }); err != nil {
		return err
	}
	what := fmt.Sprintf("Ports of one node between two C programs, by librma2 and libvelo2; both poll. CPUs %d and %d; %s; %v.",
		o.cpus.Client, o.cpus.Server, display.Count(o.runs, "run"), d)
	return result.Print(env.Stdout, o.json, o.makeRows(values, m, d), table, what, m, "")
}

// measureAll takes the figures' values. dir is for files.
func (o *options) measureAll(ctx context.Context, dir string, values map[string][]float64) (err error) {
	program, err := buildProgram(ctx, dir)
	if err != nil {
		return err
	}
	s, err := startSite(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for range o.runs {
		for _, p := range parts {
			if err := s.runPart(ctx, o, program, p.name, o.rounds/p.share, values); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *options) makeRows(values map[string][]float64, m result.Machine, d coredist.Distance) (rows []result.Row) {
	for _, f := range figures {
		r := result.Row{
			Measure: f.measure, Path: f.path, Size: f.size, Streams: 1, Unit: f.unit, Control: f.control, Distance: d,
			Placement: o.cpus.String(), Machine: m,
		}
		r.Take(values[f.name], values[f.control])
		rows = append(rows, r)
	}
	return rows
}
