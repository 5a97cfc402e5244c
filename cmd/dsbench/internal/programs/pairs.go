package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/result"
)

// Pair is a measure: a server, a client, and the figure that the client prints.
type Pair struct {
	Name      string // of the measure
	about     string
	unit      string
	size      int // bytes of a message
	streams   int // connections
	needs     []string
	bound     bool   // both ends are bound to a CPU
	oneCPU    bool   // to the same one
	exnGo     bool   // needs are Go programs that exn-go built
	plainPeer bool   // the server is not under exn-run in either path
	short     bool   // its connections end too early to be direct
	udp       bool   // the client speaks UDP
	mps       string // sockperf's limit of messages a second, if not its default

	// server and client return what to run against a port; the server may prepare
	// its directory first.
	server func(*end) ([]string, error)
	client func(*end) []string
	// prepare is called when the server listens; nil: nothing to do.
	prepare func(context.Context, *end) error
	parse   func(stdout string) (sample, error)
	// times returns the latencies of the last run, in microseconds, of a client that does not print
	// them; nil: it does, or does not know them.
	times func(*end) (p50, p99 float64, err error)

	// bridged: it can be measured between namespaces, --network bridge.
	bridged bool
	// behind returns the server behind a server that is a proxy; nil: there is none.
	behind func(*end) ([]string, error)
}

// Missing says why the measure cannot be taken here; "": it can.
func (p Pair) Missing() string {
	for _, name := range p.needs {
		if _, err := exec.LookPath(fileOf(name)); err != nil {
			return name + " is not installed"
		}
		if p.exnGo {
			if missing := builtByExnGo(name); missing != "" {
				return missing
			}
		}
	}
	return ""
}

// fileOf finds programs where not every user's PATH has them.
func fileOf(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	for _, pattern := range []string{"/usr/sbin/", "/usr/lib/postgresql/*/bin/"} {
		if found, err := filepath.Glob(pattern + name); err == nil && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return name
}

func Pairs() []Pair {
	iperf := Pair{
		Name: "iperf3", about: "one stream, 128 KiB writes, an end on each CPU", unit: "Gbit/s", size: 131072, streams: 1,
		needs: []string{"iperf3", "taskset"}, bound: true,
		server: func(e *end) ([]string, error) { return []string{"iperf3", "-s", "-p", e.port}, nil },
		client: func(e *end) []string {
			return []string{"iperf3", "-J", "-c", "127.0.0.1", "-p", e.port, "-t", e.seconds()}
		},
		parse: parseIperf,
	}
	iperf4 := iperf
	iperf4.Name, iperf4.about, iperf4.streams, iperf4.bound = "iperf3-4", "four streams, wherever the scheduler puts them", 4, false
	iperf4.client = func(e *end) []string { return append(iperf.client(e), "-P", "4") }
	iperfPlain := iperf
	iperfPlain.Name, iperfPlain.about, iperfPlain.plainPeer = "iperf3-plain-peer", "the same against a server without exn-run", true

	sockperf := Pair{
		Name: "sockperf", about: "half round trip of 64 bytes, an end on each CPU", unit: "us", size: 64, streams: 1,
		needs: []string{"sockperf", "taskset"}, bound: true,
		mps: "20000000", // by default it has room for 600,000 messages a second
		server: func(e *end) ([]string, error) {
			return []string{"sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", e.port}, nil
		},
		client: func(e *end) []string {
			argv := []string{"sockperf", "pp", "--tcp", "-i", "127.0.0.1", "-p", e.port, "-m", "64", "-t", e.seconds()}
			if e.p.mps != "" {
				argv = append(argv, "--mps="+e.p.mps)
			}
			return argv
		},
		parse: parseSockperf,
	}
	sockperf1 := sockperf
	sockperf1.Name, sockperf1.about, sockperf1.oneCPU, sockperf1.mps = "sockperf-one-cpu", "the same, both ends on one CPU", true, ""
	sockperfPlain := sockperf
	sockperfPlain.Name, sockperfPlain.about, sockperfPlain.plainPeer = "sockperf-plain-peer", "sockperf against a server without exn-run", true
	sockperfPlain.mps = ""

	redis := Pair{
		Name: "redis-benchmark", about: "GET of 3 bytes, 50 clients, no pipelining", unit: "1/s", size: 3, streams: 50,
		needs: []string{"redis-server", "redis-benchmark"}, bridged: true,
		server: func(e *end) ([]string, error) {
			return []string{"redis-server", "--bind", e.host, "--protected-mode", "no", "--port", e.port, "--save", "", "--appendonly", "no",
				"--dir", e.dir}, nil
		},
		client: func(e *end) []string {
			// It takes a number of requests, not a time: about the time on TCP.
			n := int(e.o.duration.Seconds() * 50000)
			if e.o.direct {
				n *= 8
			}
			return []string{"redis-benchmark", "-h", e.host, "-p", e.port, "-c", "50", "-n", strconv.Itoa(n), "-t", "get", "--csv"}
		},
		parse: parseRedis,
	}

	nginx := Pair{
		Name: "nginx-wrk", about: "1 KiB over 50 keep-alive connections, one worker", unit: "1/s", size: 1024, streams: 50,
		needs: []string{"nginx", "wrk"}, bridged: true,
		server: func(e *end) ([]string, error) { return nginxServer(e, e.host, e.port) },
		client: func(e *end) []string {
			return []string{"wrk", "-t", "1", "-c", "50", "-d", e.seconds() + "s", "--latency", "http://" + e.host + ":" + e.port + "/file"}
		},
		parse: parseWrk,
	}

	pgbench := Pair{
		Name: "pgbench", about: "PostgreSQL, select only, 8 clients", unit: "1/s", streams: 8,
		needs: []string{"initdb", "postgres", "pgbench"}, bridged: true,
		server:  postgresServer,
		prepare: postgresReady,
		client: func(e *end) []string {
			argv := []string{fileOf("pgbench"), "-h", e.host, "-p", e.port, "-U", "bench", "-S", "-n", "-c", "8", "-j", "1", "-T", e.seconds()}
			if e.bridge != nil { // it prints no percentiles
				argv = append(argv, "-l", "--sampling-rate=0.05", "--log-prefix="+pgbenchLog(e))
			}
			return append(argv, "postgres")
		},
		parse: parsePgbench,
		times: pgbenchTimes,
	}
	pairs := []Pair{iperf, iperf4, sockperf, sockperf1, redis, nginx, pgbench, iperfPlain, sockperfPlain}
	return append(pairs, goPairs()...)
}

// all is Pairs and what is measured over loopback only if it is named.
func all() []Pair {
	pairs := Pairs()
	i := slices.IndexFunc(pairs, func(p Pair) bool { return p.Name == "redis-benchmark" })
	short := pairs[i]
	short.Name, short.about, short.short = "redis-reconnect", "a connection for each GET (if --only names it)", true
	short.client = func(e *end) []string {
		n := int(e.o.duration.Seconds() * 10000)
		return []string{"redis-benchmark", "-h", e.host, "-p", e.port, "-c", "50", "-n", strconv.Itoa(n), "-k", "0", "-t", "get", "--csv"}
	}
	closing := pairs[slices.IndexFunc(pairs, func(p Pair) bool { return p.Name == "nginx-wrk" })]
	closing.Name, closing.about, closing.short = "nginx-close", "a connection for each request of 1 KiB (if --only names it)", true
	kept := closing.client
	closing.client = func(e *end) []string { return append(kept(e), "-H", "Connection: close") }
	cli := pairs[i]
	cli.Name, cli.about, cli.short, cli.streams = "redis-cli", "one PING a program: its start, its first connection (if --only names it)", true, 1
	cli.needs, cli.parse = []string{"redis-server", "redis-cli"}, parseCount
	cli.client = func(e *end) []string {
		script := `n=0 begin=$(date +%s%N) end=$((begin+$3*1000000000)) now=$begin
while [ $now -lt $end ]; do redis-cli -h $1 -p $2 ping >/dev/null || exit; n=$((n+1)) now=$(date +%s%N); done; echo $n $((now-begin))`
		return []string{"sh", "-c", script, "sh", e.host, e.port, e.seconds()}
	}
	return append(pairs, short, closing, cli, haproxyPair(), dnsperfPair())
}

// seconds is how long a run takes, as the programs want it.
func (e *end) seconds() string { return strconv.Itoa(int(e.o.duration / time.Second)) }

func parseIperf(stdout string) (s sample, err error) {
	var r struct {
		End struct {
			Sum struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		return s, fmt.Errorf("iperf3: %w", err)
	}
	if r.Error != "" {
		return s, fmt.Errorf("iperf3: %s", r.Error)
	}
	s.value = r.End.Sum.Bits / 1e9
	return s, nil
}

var (
	sockperfLine = regexp.MustCompile(`percentile (50|99)\.000 = *([0-9.]+)`)
	wrkRate      = regexp.MustCompile(`Requests/sec: *([0-9.]+)`)
	wrkLatency   = regexp.MustCompile(`(?m)^ *(50|99)% +([0-9.]+)(us|ms|s)`)
	pgbenchRate  = regexp.MustCompile(`tps = ([0-9.]+)`)
)

// number reads what a regular expression has found.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}

var errNoFigure = errors.New("the client printed no figure")

func parseSockperf(stdout string) (s sample, err error) {
	for _, m := range sockperfLine.FindAllStringSubmatch(stdout, -1) {
		if m[1] == "50" {
			s.value, s.p50 = number(m[2]), number(m[2])
		} else {
			s.p99 = number(m[2])
		}
	}
	if s.value == 0 {
		return s, errNoFigure
	}
	return s, nil
}

// parseRedis reads "test","rps","avg_latency_ms","min","p50","p95","p99","max".
func parseRedis(stdout string) (s sample, err error) {
	for line := range strings.Lines(stdout) {
		f := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `"`, ""), ",")
		if len(f) == 8 && f[0] == "GET" {
			s.value, s.p50, s.p99 = number(f[1]), number(f[4])*1000, number(f[6])*1000
			return s, nil
		}
	}
	return s, errNoFigure
}

// parseCount reads how often something was done, and in how many nanoseconds.
func parseCount(stdout string) (s sample, err error) {
	var n, elapsed float64
	if _, err := fmt.Sscan(stdout, &n, &elapsed); err != nil || n == 0 {
		return s, errNoFigure
	}
	s.value = n / elapsed * 1e9
	return s, nil
}

func parseWrk(stdout string) (s sample, err error) {
	m := wrkRate.FindStringSubmatch(stdout)
	if m == nil {
		return s, errNoFigure
	}
	if strings.Contains(stdout, "Socket errors") || strings.Contains(stdout, "Non-2xx") {
		return s, errors.New("wrk met errors")
	}
	s.value = number(m[1])
	units := map[string]float64{"us": 1, "ms": 1e3, "s": 1e6}
	for _, m := range wrkLatency.FindAllStringSubmatch(stdout, -1) {
		if v := number(m[2]) * units[m[3]]; m[1] == "50" {
			s.p50 = v
		} else {
			s.p99 = v
		}
	}
	return s, nil
}

func parsePgbench(stdout string) (s sample, err error) {
	m := pgbenchRate.FindStringSubmatch(stdout)
	if m == nil {
		return s, errNoFigure
	}
	s.value = number(m[1])
	return s, nil
}

// nginxServer prepares a directory and a configuration for nginx at an address.
func nginxServer(e *end, host, port string) ([]string, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user nobody nogroup;" // a worker of another user than the master, as usual
	}
	config := fmt.Sprintf(`daemon off; %[3]s worker_processes 1; pid %[1]s/nginx.pid; error_log stderr;
events { worker_connections 512; }
http {
	access_log off; keepalive_requests 1000000000; sendfile on;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[4]s:%[2]s; root %[1]s; }
}
`, e.dir, port, user, host)
	path := filepath.Join(e.dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(e.dir, "file"), []byte(strings.Repeat("0123456789abcde\n", 64)), 0o644); err != nil {
		return nil, err
	}
	return []string{fileOf("nginx"), "-c", path, "-p", e.dir}, nil
}

// postgresUser is prepended to what PostgreSQL does not do as root.
func postgresUser() []string {
	if os.Geteuid() != 0 {
		return nil
	}
	return []string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"}
}

func postgresServer(e *end) ([]string, error) {
	db := filepath.Join(e.dir, "db")
	argv := append(postgresUser(), fileOf("initdb"), "-D", db, "-A", "trust", "-U", "bench", "--no-sync")
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, result.LastLine(string(out)))
	}
	if err := os.WriteFile(filepath.Join(db, "pg_hba.conf"), []byte("host all all "+e.host+"/24 trust\nlocal all all trust\n"), 0o600); err != nil {
		return nil, err
	}
	return append(postgresUser(), fileOf("postgres"), "-D", db, "-p", e.port, "-h", e.host, "-k", e.dir, "-c", "fsync=off"), nil
}

// postgresReady waits until the server answers, and fills its tables.
func postgresReady(ctx context.Context, e *end) error {
	var out []byte
	var err error
	for end := time.Now().Add(serverTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err = e.tool(ctx, fileOf("pgbench"), "-h", e.host, "-p", e.port, "-U", "bench", "-i", "-q", "postgres")
		if err == nil || !strings.Contains(string(out), "starting up") {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("pgbench -i: %w: %s", err, result.LastLine(string(out)))
	}
	return nil
}
