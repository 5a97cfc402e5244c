package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/tempdir"
	"exnet/internal/version"
)

// Redis is redis-server and redis-benchmark, as the host has them, with exn-run and without.
type Redis struct {
	// ExnRun is the path of exn-run; "": Prepare builds it.
	ExnRun string
	// Requests is how many GETs a run has.
	Requests int

	dir string // what Prepare has built is here; "": nothing
}

// RedisClients is the number of connections: the default of redis-benchmark.
const RedisClients = 50

// redisTime bounds the start of a server, and a run, on a busy machine.
const redisTime = time.Minute

// FindRedis returns Redis, or an error that says what is missing. exn-run is beside this program,
// or in PATH, or will be built, if "go run" runs this program.
func FindRedis(requests int) (Redis, error) {
	r := Redis{Requests: requests}
	for _, name := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(name); err != nil {
			return r, fmt.Errorf("%s is not installed", name)
		}
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "exn-run")
		if info, err := os.Stat(beside); err == nil && !info.IsDir() {
			r.ExnRun = beside
			return r, nil
		}
	}
	if GoRun() {
		return r, nil
	}
	var err error
	if r.ExnRun, err = exec.LookPath("exn-run"); err != nil {
		return r, errors.New("exn-run is neither beside exn-tun nor in PATH")
	}
	return r, nil
}

// goRunDir is the folder of a program that "go run" has built: a temporary one at first, then one
// of Go's build cache. No other command of the module is there.
var goRunDir = regexp.MustCompile(`/go-build[^/]*/b\d+/exe$|/[0-9a-f]{64}-d$`)

// GoRun reports whether "go run" has built and started this program.
func GoRun() bool {
	self, err := os.Executable()
	return err == nil && goRunDir.MatchString(filepath.Dir(self))
}

// Prepare builds what is not built yet, exn-run and its library, so that no measurement waits for
// it. The caller calls Close.
func (r *Redis) Prepare(ctx context.Context) (err error) {
	if r.ExnRun == "" {
		if r.dir, err = tempdir.New("exn-demo-run"); err != nil {
			return err
		}
		path := filepath.Join(r.dir, "exn-run")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, version.Module()+"/cmd/exn-run").CombinedOutput(); err != nil {
			return fmt.Errorf("building exn-run: %w%s", err, lastLine(string(out)))
		}
		r.ExnRun = path
	}
	if out, err := exec.CommandContext(ctx, r.ExnRun, "--print-env").CombinedOutput(); err != nil {
		return fmt.Errorf("exn-run: %w%s", err, lastLine(string(out)))
	}
	return nil
}

// Close removes what Prepare has built.
func (r *Redis) Close() error {
	if r.dir == "" {
		return nil
	}
	return tempdir.Remove(r.dir)
}

// Measure runs the server in p.B and the client in p.A, both under exn-run if direct is set, and
// returns GET requests per second. It is an error if no connection was direct that should be.
func (r Redis) Measure(ctx context.Context, p Path, direct bool) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, redisTime, fmt.Errorf("not done within %v", redisTime))
	defer cancel()
	dir, err := tempdir.New("exn-demo")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, tempdir.Remove(dir)) }()
	addr := p.B.Addrs[V4].String()
	port, err := freePort(p.B, addr)
	if err != nil {
		return 0, err
	}
	server, said := programOf(ctx, r.underRun(direct, "", "redis-server", "--bind", addr, "--port", port,
		"--protected-mode", "no", "--save", "", "--appendonly", "no", "--dir", dir))
	server.Stdout = said // it reports errors there
	if err := p.B.NS.Start(server); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait() // it ends by a signal
		close(ended)
	}()
	defer func() {
		_ = server.Process.Signal(unix.SIGKILL) // there is nothing to save
		<-ended
	}()
	if err := awaitListener(ctx, p.A, net.JoinHostPort(addr, port), ended); err != nil {
		if errors.Is(err, errEnded) { // and has said what it had to say
			err = fmt.Errorf("redis-server: %w%s", err, lastLine(said.String()))
		}
		return 0, err
	}
	report := ""
	if direct {
		report = filepath.Join(dir, "report")
	}
	client, complaint := programOf(ctx, r.underRun(direct, report, "redis-benchmark", "-h", addr, "-p", port,
		"-c", strconv.Itoa(RedisClients), "-n", strconv.Itoa(r.Requests), "-t", "get", "--csv"))
	var out bytes.Buffer
	client.Stdout = &out
	if err := p.A.NS.Run(client); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, fmt.Errorf("redis-benchmark: %w%s", err, lastLine(complaint.String()))
	}
	if direct {
		if err := allDirect(report, RedisClients); err != nil {
			return 0, err
		}
	}
	return redisRate(out.String())
}

// underRun returns the arguments of a program, with exn-run before it if it is to be direct.
func (r Redis) underRun(direct bool, report string, argv ...string) []string {
	if !direct {
		return argv
	}
	run := []string{r.ExnRun}
	if report != "" {
		run = append(run, "-o", report)
	}
	return append(append(run, "--"), argv...)
}

// freePort returns a port of the address that nobody listens at.
func freePort(e End, addr string) (port string, err error) {
	err = e.NS.Do(func() error {
		ln, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			return err
		}
		_, port, err = net.SplitHostPort(ln.Addr().String())
		return errors.Join(err, ln.Close())
	})
	return port, err
}

var errEnded = errors.New("it has ended")

// awaitListener waits until something listens at addr.
func awaitListener(ctx context.Context, from End, addr string, ended <-chan struct{}) error {
	for {
		err := from.NS.Do(func() error {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return errEnded
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// allDirect reports an error unless as many connections in a report of exn-run were direct: the
// program opens another one or two, which carry one request.
func allDirect(path string, want int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	direct, why := 0, "exn-run tells of no connection"
	for line := range strings.Lines(string(text)) {
		var c struct{ Path, Choice string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return err
		}
		if c.Path == "direct" {
			direct++
		} else {
			why = c.Choice
		}
	}
	if direct < want {
		return fmt.Errorf("%d of %d connections were direct (%s)", direct, want, why)
	}
	return nil
}

// redisRate reads the output of redis-benchmark --csv.
func redisRate(text string) (float64, error) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `"`, ""), ",")
		if len(f) > 1 && f[0] == "GET" {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("redis-benchmark prints no figure%s", lastLine(text))
}
