package programs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/tcpbench"
)

// end is a server, and what clients of it need.
type end struct {
	o      Options
	p      Pair
	direct bool
	dir    string
	cpus   tcpbench.Placement
	host   string // address of the server, as its clients know it
	port   string
	bridge *bridge // nil: all is on loopback
	group  *cgroup // of the path's programs; nil: on loopback

	// behind is the server behind a server that is a proxy, if there is one, at
	// backHost:backPort.
	behind             *measure.Program
	backHost, backPort string

	server *measure.Program
	runs   int
}

// clientTime is how much longer than its duration a client may take.
const clientTime = 20 * time.Second

// startServer starts the server.
func (e *end) startServer(ctx context.Context) error {
	if err := os.Mkdir(e.dir, 0o777); err != nil {
		return err
	}
	// Not subject to the umask: a server may be another user's.
	if err := os.Chmod(e.dir, 0o777); err != nil {
		return err
	}
	e.host, e.backHost = loopback, loopback
	at := serverSite
	if e.bridge != nil {
		e.host = serverSite.bridgeAddr()
		if e.p.behind != "" {
			at, e.host, e.backHost = proxySite, proxySite.bridgeAddr(), serverSite.bridgeAddr()
		}
	}
	var err error
	if e.backPort, err = e.freePort(serverSite, e.backHost); err != nil {
		return err
	}
	for e.port = e.backPort; e.port == e.backPort; {
		if e.port, err = e.freePort(at, e.host); err != nil {
			return err
		}
	}
	if err := e.prepareFiles(); err != nil {
		return err
	}
	if e.p.behind != "" {
		if e.behind, err = e.startAndWait(ctx, serverSite, e.splitLine(e.p.behind), net.JoinHostPort(e.backHost, e.backPort)); err != nil {
			return err
		}
	}
	if e.server, err = e.startAndWait(ctx, at, e.asUser(e.p.server), net.JoinHostPort(e.host, e.port)); err != nil {
		return err
	}
	return e.prepareServer(ctx)
}

// prepareServer runs what a listening server needs, again while it is starting up.
func (e *end) prepareServer(ctx context.Context) error {
	if e.p.prepare == "" {
		return nil
	}
	for end := time.Now().Add(measure.StartTime); ; time.Sleep(50 * time.Millisecond) {
		argv := e.splitLine(e.p.prepare)
		out, said, err := measure.Output(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...), e.launchAt(clientSite))
		if err == nil {
			return nil
		}
		if !strings.Contains(out+said, "starting up") || time.Now().After(end) {
			return fmt.Errorf("%s: %w", e.p.prepare, err)
		}
	}
}

// freePort finds a port that nothing listens at.
func (e *end) freePort(at site, host string) (port string, err error) {
	err = e.runInSite(at, func() error {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return err
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String()) // it is one
		return ln.Close()
	})
	return port, err
}

// startAndWait starts a server and waits until it listens. It returns the server also with an
// error, if it runs.
func (e *end) startAndWait(ctx context.Context, at site, argv []string, addr string) (*measure.Program, error) {
	cmd := e.makeCommand(ctx, e.cpus.Server, e.direct && !e.p.plainPeer, "", argv)
	s, err := measure.Start(argv[0], cmd, e.launchAt(at))
	if err != nil {
		return nil, err
	}
	dial := func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return s, measure.Await(ctx, argv[0], func() error { return e.runInSite(clientSite, dial) }, s)
}

// stopServers ends the servers.
func (e *end) stopServers() error { return errors.Join(e.server.Stop(), e.behind.Stop()) }

// takeTurn runs the client. Over a bridge it does so without an agent or with one, and before
// that for a second until programs know of the agent: they look for it at least every five
// seconds.
func (e *end) takeTurn(ctx context.Context) (s sample, err error) {
	if e.bridge == nil {
		return e.runClient(ctx)
	}
	if e.direct {
		if err := e.bridge.startAgent(ctx, e.o.exnTun, e.group); err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, e.bridge.stopAgent()) }()
	}
	counted := e.o.duration
	e.o.duration = time.Second
	for begin := time.Now(); ; {
		_, err = e.runClient(ctx)
		if !errors.Is(err, errNotDirect) || time.Since(begin) > measure.StartTime {
			break
		}
	}
	if e.o.duration = counted; err != nil {
		return s, err
	}
	return e.runClient(ctx)
}

// runClient runs the client once. errNotDirect: its connections should have been direct, and
// were not.
func (e *end) runClient(ctx context.Context) (s sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.o.duration+clientTime, errors.New("the client hangs"))
	defer cancel()
	report := ""
	if e.direct && !e.p.plainPeer && !e.p.short { // to note each of many connections costs something
		e.runs++
		report = filepath.Join(e.dir, "report"+strconv.Itoa(e.runs))
	}
	line := e.p.client
	if e.bridge != nil && e.p.bridgeClient != "" {
		line = e.p.bridgeClient
	}
	cmd := e.makeCommand(ctx, e.cpus.Client, e.direct, report, e.splitLine(line))
	before, err := e.group.cpuTime()
	if err != nil {
		return s, err
	}
	begin := time.Now()
	stdout, stderr, err := measure.Output(ctx, cmd, e.launchAt(clientSite))
	elapsed := time.Since(begin)
	if err != nil {
		return s, err
	}
	after, err := e.group.cpuTime()
	if err != nil {
		return s, err
	}
	if report != "" {
		if err := isDirect(report, e.bridge != nil); err != nil {
			return s, err
		}
	}
	if s, err = e.p.said.parseFigures(stdout); err != nil {
		return s, fmt.Errorf("%w: %s", err, result.LastLine(stdout+stderr))
	}
	if e.bridge != nil {
		s.cpu = (after - before).Seconds() * 1e6 / (s.value * elapsed.Seconds())
		if e.p.times != nil {
			s.p50, s.p99, err = e.p.times(e)
		}
	}
	return s, err
}

// makeCommand makes the command of a program: under exn-run if it is to be direct, bound
// to a CPU if the measure says so, killed with its children when ctx ends.
func (e *end) makeCommand(ctx context.Context, cpu int, direct bool, report string, argv []string) *exec.Cmd {
	if direct {
		run := []string{e.o.exnRun}
		if e.bridge == nil {
			run = append(run, "--loopback")
		}
		if report != "" {
			run = append(run, "--report", report)
		}
		argv = append(append(run, "--"), argv...)
	}
	if e.p.bound {
		argv = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// directShare is how much of what a client received between namespaces has to come direct: the
// first bytes of a connection do not.
const directShare = 0.9

var errNotDirect = errors.New("not direct")

// isDirect returns errNotDirect unless a connection in a report of exn-run was direct, or nearly
// all bytes were.
func isDirect(path string, nearlyAll bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	why, one := "the library reported none", false
	var direct, all uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct {
			Path, Choice string
			Received     connstats.Traffic
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		direct, all = direct+r.Received.DirectBytes, all+r.Received.DirectBytes+r.Received.ShadowBytes
		if r.Path == pathDirect {
			one = true
		} else {
			why = r.Choice
		}
	}
	switch {
	case !one:
		return fmt.Errorf("%w: no connection (%s)", errNotDirect, why)
	case nearlyAll && float64(direct) < directShare*float64(all):
		return fmt.Errorf("%w: all but %d of %d bytes (%s)", errNotDirect, direct, all, why)
	}
	return nil
}
