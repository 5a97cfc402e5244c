package mpi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed" // of osu.c and exn-rsh
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/fabric/pattern"
	"exnet/internal/display"
	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
	"exnet/node/hostnet"
)

//go:embed source/osu.c
var osuSource []byte

//go:embed source/exn-rsh
var rshScript []byte

// units are what osu.c measures, in order.
var units = []struct{ measure, unit string }{{"latency", "us"}, {"bandwidth", "Gbit/s"}, {"rate", "M/s"}}

// site is a path that is set up.
type site struct {
	name   string
	path   paths.Path
	device string
	hosts  [2]string
	nodes  string // EXN_NODES
}

// ended is a path with two ends; all that the kernel's TCP goes through have them.
type ended interface {
	Ends() (client, server tcpbench.End)
}

// carriers are the paths of package paths that make the namespaces of those that are not lo's,
// and the interfaces there; direct sockets have their shadow there.
var carriers = map[string]struct{ path, device string }{"veth": {"veth", "veth0"}, "exn": {"exn", "exn0"}, "ds-exn": {"exn", "exn0"}}

// openSite sets a path up.
func openSite(ctx context.Context, name string) (*site, error) {
	carrier, ok := carriers[name]
	if !ok {
		carrier.path, carrier.device = "lo", "lo"
	}
	kind, err := paths.KindOf(carrier.path)
	if err != nil {
		return nil, err
	}
	s := &site{name: name, path: kind.Open(paths.NodeConfig{}), device: carrier.device}
	if err := s.path.Setup(ctx); err != nil {
		return nil, errors.Join(err, s.path.Close())
	}
	e, ok := s.path.(ended)
	if !ok {
		return nil, errors.Join(fmt.Errorf("path %s has no ends", name), s.path.Close())
	}
	client, server := e.Ends()
	for i, end := range []tcpbench.End{client, server} {
		host, err := hostnet.Open(end.NS)
		if err == nil {
			err = errors.Join(host.LoopbackUp(), host.Close())
		}
		if err != nil {
			return nil, errors.Join(err, s.path.Close())
		}
		s.hosts[i] = end.Addr.String()
		s.nodes += fmt.Sprintf("%s=%s ", end.Addr, end.NS.Path())
	}
	return s, nil
}

// bench is what all runs share.
type bench struct {
	o        Options
	dir      string
	programs map[string]string // by the library's name
	grace    time.Duration     // what a run may take, besides its measurements
}

// buildPrograms writes the launcher, and compiles osu.c. It has exn-run build its library: in a
// run that would count as hanging.
func (b *bench) buildPrograms(ctx context.Context, list []library) error {
	if slices.ContainsFunc(b.o.paths, isDirect) {
		if err := measure.Prepare(ctx, b.o.exnRun); err != nil {
			return err
		}
	}
	if err := errors.Join(os.WriteFile(b.rsh(), rshScript, 0o755), os.WriteFile(filepath.Join(b.dir, "osu.c"), osuSource, 0o644)); err != nil {
		return err
	}
	b.programs = make(map[string]string)
	for _, l := range list {
		b.programs[l.name] = filepath.Join(b.dir, "osu-"+l.name)
		out, err := exec.CommandContext(ctx, l.compiler, "-O2", "-o", b.programs[l.name], filepath.Join(b.dir, "osu.c")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", l.compiler, err, out)
		}
	}
	return nil
}

func (b *bench) rsh() string { return filepath.Join(b.dir, "exn-rsh") }

// figure is a place in the table.
type figure struct {
	library, path, measure string
	size                   int
}

// Times of one mpirun, besides its measurements.
const (
	graceTime    = time.Minute // after which it counts as hung
	finalizeTime = 2 * time.Second
)

// A run starts with a warm-up, in which its connections become direct where they shall. If
// they do not, as the machine is busy, the run counts for nothing, and is repeated with a
// longer one.
const (
	firstWarmup = 50 * time.Millisecond
	warmups     = 8 // each twice as long as the one before
)

// Why a run counts for nothing.
var (
	errNotDirect = errors.New("no connection of the ranks was direct")
	errHung      = errors.New("it hung") // MPICH does at times (docs/mpi.md)
	errNothing   = errors.New("it measured nothing")
)

// mostHung is how many runs may hang, one after the other.
const mostHung = 3

// runOnce makes a run, and stores its figures in values.
func (b *bench) runOnce(ctx context.Context, l library, s *site, values map[figure]float64) (err error) {
	for warmup, hung := 0, 0; warmup < warmups && hung < mostHung; {
		seen := make(map[figure]float64)
		err = b.startRanks(ctx, l, s, firstWarmup<<warmup, func(f figure, v float64) { seen[f] = v })
		switch {
		case errors.Is(err, errNotDirect):
			warmup++
		case errors.Is(err, errHung):
			hung++
		case err != nil:
			return err
		default:
			maps.Copy(values, seen)
			return nil
		}
	}
	return fmt.Errorf("%s over %s: %w", l.name, s.name, err)
}

// startRanks starts two ranks, and gives each figure to found.
func (b *bench) startRanks(ctx context.Context, l library, s *site, warmup time.Duration, found func(figure, float64)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.grace+20*(warmup+time.Duration(len(b.o.sizes))*b.o.duration), errHung)
	defer cancel()
	argv := append([]string{s.hosts[0]}, l.command(b.rsh(), b.o.exnRun, s)...)
	profile := ""
	if isDirect(s.name) {
		var err error
		if profile, err = os.MkdirTemp(b.dir, "profile-"); err != nil {
			return err
		}
		argv = append(argv, b.o.exnRun, "--profile", profile)
		if s.device == "lo" {
			argv = append(argv, "--loopback")
		}
	}
	argv = append(argv, b.programs[l.name], fmt.Sprint(warmup.Seconds()), fmt.Sprint(b.o.duration.Seconds()))
	for _, n := range b.o.sizes {
		argv = append(argv, strconv.Itoa(n))
	}
	cmd := exec.CommandContext(ctx, b.rsh(), argv...)
	cmd.Env = append(os.Environ(), "EXN_NODES="+s.nodes, "LC_ALL=C", "FI_TCP_IFACE="+s.device)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = finalizeTime
	var said bytes.Buffer
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	whole := read(stdout, l.name, s.name, found)
	end := func(sig unix.Signal) func() { return func() { _ = unix.Kill(-cmd.Process.Pid, sig) } } // it may have ended
	late, last := time.AfterFunc(finalizeTime, end(unix.SIGTERM)), time.AfterFunc(2*finalizeTime, end(unix.SIGKILL))
	err = cmd.Wait()
	last.Stop()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if !whole && s.name == exnetOFI {
		err = fmt.Errorf("%w (is the provider there? docs/libfabric.md)", cmp.Or(err, errNothing))
	}
	if !whole {
		return fmt.Errorf("%s over %s: %w: %s", l.name, s.name, cmp.Or(err, errNothing), strings.TrimSpace(said.String()))
	}
	if profile == "" || !late.Stop() {
		return nil // or it was told to end, and wrote no profile
	}
	return wasDirect(profile)
}

// read reads the lines of osu.c. whole: up to the last.
func read(r io.Reader, library, path string, found func(figure, float64)) (whole bool) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if lines.Text() == "end" {
			return true
		}
		f := figure{library: library, path: path}
		var v float64
		if n, err := fmt.Sscanf(lines.Text(), "%s %d %g", &f.measure, &f.size, &v); n == 3 && err == nil && v > 0 {
			found(f, v)
		}
	}
	return false
}

// wasDirect reports that the ranks of a run were not on direct sockets.
func wasDirect(dir string) error {
	all, err := pattern.ReadProcesses(filepath.Join(dir, "profile.json"))
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Events > 0 {
			return nil
		}
	}
	return errNotDirect
}

// Take measures what the options ask for, prints it, and says what is left out.
func (o *Options) Take(ctx context.Context, env measure.Env) error {
	m, d := result.ThisMachine(time.Now()), env.Distance()
	rows, missing, err := o.Rows(ctx, m, d)
	for _, text := range missing {
		fmt.Fprintf(env.Stderr, "dsbench mpi: %s\n", text)
	}
	if len(rows) == 0 {
		return err
	}
	what := fmt.Sprintf("MPI between two ranks, as the OSU Micro-Benchmarks measure it: half a round trip; windows of 64 messages. %s of %v each, interleaved; %v.",
		display.Count(o.runs, "run"), o.duration, d)
	return errors.Join(result.Print(env.Stdout, o.json, rows, table, what, m, ""), err)
}

// table has the figures.
var table = result.NewTable(" ", "measure -18", "bytes 7", "path -7", "median 9", "=unit -7", "min 9", "max 9", "spread 6", "times 7")

// Rows measures what the options ask for. missing says which MPI is left out, and why.
// The measure of a row is the MPI's name and "latency" (us), "bandwidth" (Gbit/s) or "rate"
// (M/s). Beside an error there are the rows of what has not failed.
func (o *Options) Rows(ctx context.Context, m result.Machine, d coredist.Distance) (rows []result.Row, missing []string, err error) {
	if !netns.Privileged() || os.Geteuid() != 0 {
		return nil, nil, errRoot
	}
	list, missing := o.installed()
	if len(list) == 0 {
		return nil, missing, errors.New("no MPI is installed")
	}
	rows, err = o.measureLibraries(ctx, list, m, d)
	return rows, missing, err
}

// installed returns those libraries that the options ask for, and what is missing of others.
func (o *Options) installed() (list []library, missing []string) {
	for _, l := range libraries {
		if len(o.mpis) > 0 && !slices.Contains(o.mpis, l.name) {
			continue
		}
		if text := l.missing(); text != "" {
			missing = append(missing, l.name+" is left out: "+text)
			continue
		}
		list = append(list, l)
		for _, p := range o.paths {
			if !l.carriedBy(p) {
				missing = append(missing, fmt.Sprintf("%s is left out over %s: Debian's is not built for libfabric", l.name, p))
			}
		}
	}
	return list, missing
}

// measureLibraries measures the libraries on all paths.
func (o *Options) measureLibraries(ctx context.Context, list []library, m result.Machine, d coredist.Distance) (rows []result.Row, err error) {
	b := &bench{o: *o, grace: graceTime}
	if b.dir, err = tempdir.New("dsbench-mpi"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tempdir.Remove(b.dir)) }()
	if err := b.buildPrograms(ctx, list); err != nil {
		return nil, err
	}
	var sites []*site
	for _, name := range o.paths {
		s, err := openSite(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("path %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, s.path.Close()) }()
		sites = append(sites, s)
	}
	var failed []error
	given := make(map[string]bool) // up: a library over a path
	round := func(int) (map[figure]float64, error) {
		values := make(map[figure]float64)
		for _, l := range list {
			for _, s := range sites {
				if given[l.name+s.name] || !l.carriedBy(s.name) {
					continue
				}
				err := b.runOnce(ctx, l, s, values)
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				if err != nil {
					failed, given[l.name+s.name] = append(failed, err), true
				}
			}
		}
		return values, nil
	}
	values, at, err := coredist.Rounds(o.runs, measure.Distance, round)
	if err != nil {
		return nil, err
	}
	return o.makeRows(list, sites, values, m, d.At(at)), errors.Join(failed...)
}

// makeRows makes the rows, in the form of every other measure. The control is the first path.
func (o *Options) makeRows(list []library, sites []*site, values map[figure][]float64, m result.Machine, d coredist.Distance) (rows []result.Row) {
	for _, u := range units {
		for _, l := range list {
			for _, size := range o.sizes {
				control := values[figure{l.name, sites[0].name, u.measure, size}]
				for _, s := range sites {
					r := result.Row{
						Measure: l.name + " " + u.measure, Path: s.name, Size: size, Streams: 1, Unit: u.unit, Control: sites[0].name,
						Duration: o.duration.Seconds(), Distance: d, MTU: s.path.Info().MTU, Placement: tcpbench.Anywhere().String(), Machine: m,
					}
					list := values[figure{l.name, s.name, u.measure, size}]
					if len(list) == 0 {
						continue // it failed
					}
					r.Take(list, control)
					rows = append(rows, r)
				}
			}
		}
	}
	return rows
}
