package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-run/exnrun"
	"exnet/internal/longtest"
)

// Each test runs a real server and a real client in a namespace, without exn-run
// and with it. That they work is the same test in both; that the connections were
// direct is seen in what exn-run reports.

// largeSize is that of a file that takes TCP longer than a connection takes to become direct. How
// much of it goes directly then depends on when the broker gets a CPU: leastDirect is asked for.
const (
	largeSize   = 64<<20 + 123
	leastDirect = 64 << 10
)

func TestRootRunIperf(t *testing.T) {
	needRun(t, "iperf3")
	const size = 256 << 20
	eachLocal(t, func(t *testing.T, l *local) {
		for _, tt := range []struct {
			name    string
			options []string
			streams int
		}{
			{"one stream", nil, 1},
			{"reverse", []string{"-R"}, 1},
			{"four streams", []string{"-P", "4"}, 4},
			{"both ways", []string{"--bidir"}, 2},
			{"ip=6", []string{"-6"}, 1},
			{"zero copy", []string{"-Z"}, 1}, // sendfile
		} {
			t.Run(tt.name, func(t *testing.T) {
				l := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
				s := l.serve(t, iperfPort, "iperf3", "-s", "-1", "-p", iperfPort)
				to := "127.0.0.1"
				if tt.name == "ip=6" {
					to = "::1"
				}
				out := l.run(t, append([]string{"iperf3", "-J", "-c", to, "-p", iperfPort, "-n", fmt.Sprint(size)}, tt.options...)...)
				s.wait(t)
				var r iperfResult
				if err := json.Unmarshal([]byte(out), &r); err != nil || r.Error != "" || r.End.SumReceived.Bytes == 0 {
					t.Fatalf("%v %s\n%s", err, r.Error, out)
				}
				l.check(t, expect{"iperf3", false, tt.streams, leastDirect}, expect{"iperf3", true, tt.streams, leastDirect})
			})
		}
	})
}

func TestRootRunCurl(t *testing.T) {
	needRun(t, "curl", "python3")
	const port = "8000"
	path, _ := randomFile(t, largeSize)
	eachLocal(t, func(t *testing.T, l *local) {
		s := l.serve(t, port, "python3", "-m", "http.server", "--directory", filepath.Dir(path), port)
		got := filepath.Join(l.dir, "got")
		l.run(t, "curl", "-sS", "-f", "-o", got, "http://127.0.0.1:"+port+"/data")
		same(t, got, path)
		s.end(t)
		l.check(t, expect{"curl", false, 1, leastDirect}, expect{"python", true, 1, leastDirect})
	})
}

func TestRootRunRedis(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "redis-benchmark", "redis-cli", "redis-server")
	const port = "6379"
	eachLocal(t, func(t *testing.T, l *local) {
		s := l.serve(t, port, "redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir", l.dir)
		for _, options := range [][]string{{"-d", "3"}, {"-d", "2000", "-P", "16"}, {"-d", "100000", "-n", "200"}} {
			out := l.run(t, append([]string{"redis-benchmark", "-p", port, "-n", "20000", "-c", "20", "-t", "ping,set,get", "-q"}, options...)...)
			if got := strings.Count(out, "requests per second"); got != 4 {
				t.Errorf("%q: %d results, want PING_INLINE, PING_MBULK, SET and GET\n%s", options, got, out)
			}
		}
		if out := l.run(t, "redis-cli", "-p", port, "-r", "10", "incr", "n"); !strings.HasSuffix(out, "10\n") {
			t.Errorf("incr: %q", out)
		}
		s.end(t)
		// In the third run a client may have done its share in one request, and in the
		// others, on a busy machine, before the broker had its turn.
		l.check(t, expect{"redis-benchmark", false, 4 * 20, 0}, expect{"redis-server", true, 4 * 20, 0})
	})
}

const nginxConfig = `
daemon off;
user nobody nogroup;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	sendfile %[2]s;
	keepalive_requests 1000000;
	server { listen 8080; listen [::]:8080; root %[1]s/www; }
}
`

func TestRootRunNginx(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "curl", "nginx", "wrk")
	path, _ := randomFile(t, largeSize)
	eachLocal(t, func(t *testing.T, l *local) {
		for _, sendfile := range []string{"on", "off"} {
			t.Run("sendfile="+sendfile, func(t *testing.T) {
				l := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
				www := filepath.Join(l.dir, "www")
				if err := os.Mkdir(www, 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(www, "small"), strings.Repeat("0123456789abcde\n", 64))
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(www, "large"), string(data))
				for _, name := range []string{"small", "large"} {
					if err := os.Chmod(filepath.Join(www, name), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				config := filepath.Join(l.dir, "nginx.conf")
				write(t, config, fmt.Sprintf(nginxConfig, l.dir, sendfile))
				s := l.serve(t, "8080", "nginx", "-c", config, "-p", l.dir)
				got := filepath.Join(l.dir, "got")
				l.checkSoon(t, func() {
					l.run(t, "curl", "-sS", "-f", "-o", got, "http://127.0.0.1:8080/large")
					same(t, got, path)
				}, expect{"curl", false, 1, leastDirect})
				l.checkLonger(t, func(d time.Duration) {
					out := l.run(t, "wrk", "-t", "2", "-c", "20", "-d", fmt.Sprint(d.Seconds(), "s"), "--latency", "http://127.0.0.1:8080/small")
					if strings.Contains(out, "Non-2xx") || strings.Contains(out, "Socket errors") || !strings.Contains(out, "Requests/sec") {
						t.Errorf("wrk:\n%s", out)
					}
				}, expect{"wrk", false, 20, 0})
				s.end(t)
				l.check(t, expect{"nginx", true, 21, leastDirect})
			})
		}
	})
}

func TestRootRunRsync(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "rsync")
	path, _ := randomFile(t, largeSize)
	eachLocal(t, func(t *testing.T, l *local) {
		config := filepath.Join(l.dir, "rsyncd.conf")
		up := filepath.Join(l.dir, "up")
		if err := os.Mkdir(up, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, config, fmt.Sprintf("use chroot = no\nuid = root\ngid = root\nlog file = /dev/stderr\n[down]\npath = %s\n[up]\npath = %s\nread only = no\n",
			filepath.Dir(path), up))
		s := l.serve(t, "8730", "rsync", "--daemon", "--no-detach", "--config", config, "--port", "8730")
		got := filepath.Join(l.dir, "got")
		l.run(t, "rsync", "rsync://127.0.0.1:8730/down/data", got)
		same(t, got, path)
		l.run(t, "rsync", path, "rsync://127.0.0.1:8730/up/")
		same(t, filepath.Join(up, "data"), path)
		s.end(t)
		// To receive, the server forks as soon as it knows what to do: the offer of that connection
		// may come too late.
		l.check(t, expect{"rsync", false, 1, 1}, expect{"rsync", true, 1, leastDirect})
	})
}

func TestRootRunAsyncio(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	eachLocal(t, func(t *testing.T, l *local) {
		l.checkSoon(t, func() {
			if out := l.run(t, "python3", script(t, "asyncio_echo.py")); out != "ok\n" {
				t.Errorf("got %q", out)
			}
		}, expect{"python", false, 5, 1 << 20}, expect{"python", true, 5, 1 << 20})
	})
}

func TestRootRunPerl(t *testing.T) {
	needRun(t, "perl")
	eachLocal(t, func(t *testing.T, l *local) {
		l.checkSoon(t, func() {
			if out := l.run(t, "perl", script(t, "echo.pl")); out != "ok\n" {
				t.Errorf("got %q", out)
			}
		}, expect{"perl", false, 1, 1 << 20}, expect{"perl", true, 1, 1 << 20})
	})
}

func TestRootRunNode(t *testing.T) {
	longtest.Skip(t)
	optional(t, "nodejs", "node", "gcc")
	eachLocal(t, func(t *testing.T, l *local) {
		l.checkSoon(t, func() {
			if out := l.run(t, "node", script(t, "http.js")); out != "ok\n" {
				t.Errorf("got %q", out)
			}
		}, expect{"node", false, 2, 1 << 20}, expect{"node", true, 2, 1 << 20})
	})
}

func TestRootRunJava(t *testing.T) {
	longtest.Skip(t)
	optional(t, "default-jdk-headless", "javac", "java", "gcc")
	classes := t.TempDir()
	if out, err := command(t.Context(), "javac", "-d", classes, script(t, "Echo.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eachLocal(t, func(t *testing.T, l *local) {
		if out := l.run(t, "java", "-cp", classes, "Echo"); out != "ok\n" {
			t.Errorf("got %q", out)
		}
		// Sockets that block, and channels with a selector.
		l.check(t, expect{"java", false, 2, 20 << 20}, expect{"java", true, 2, 20 << 20})
	})
}

// A server of many processes, run by a user other than root, with a client as
// another.
func TestRootRunPostgreSQL(t *testing.T) {
	longtest.Skip(t)
	optional(t, "postgresql", "setpriv", "gcc")
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bins) == 0 {
		t.Skip("PostgreSQL is not there: RUNLEVEL=1 apt-get install postgresql")
	}
	bin := func(name string) string { return filepath.Join(bins[len(bins)-1], name) }
	const port, user = "5433", "postgres"
	eachLocal(t, func(t *testing.T, l *local) {
		// The broker is root's, which all may use.
		keep := l.start(t, "sleep", "1000")
		db := filepath.Join(l.dir, "db")
		plain := func(argv ...string) {
			t.Helper()
			if out, err := runIn(t, l.ns, nil, append([]string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"}, argv...)...); err != nil {
				t.Fatalf("%q: %v\n%s", argv, err, out)
			}
		}
		plain(bin("initdb"), "-D", db, "-A", "trust", "--no-sync")
		s := l.startAs(t, user, bin("postgres"), "-D", db, "-p", port, "-h", "127.0.0.1", "-k", l.dir, "-c", "fsync=off")
		s.says(t, "ready to accept connections")
		plain(bin("pgbench"), "-h", "127.0.0.1", "-p", port, "-i", "-q", "postgres")
		out := l.run(t, bin("pgbench"), "-h", "127.0.0.1", "-p", port, "-U", user, "-S", "-c", "4", "-j", "2", "-t", "500", "postgres")
		if !strings.Contains(out, "2000/2000") {
			t.Errorf("pgbench:\n%s", out)
		}
		s.end(t)
		keep.stop()
		l.check(t, expect{"pgbench", false, 4, 0}, expect{"postgres", true, 4, 0})
	})
}

// A server of another user, whose broker was there before root's: it changes to root's,
// which is the only one that root's programs use, within a second.
func TestRootRunUsersBroker(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "redis-benchmark", "redis-server", "setpriv")
	const port = "6379"
	for _, report := range []bool{false, true} { // exn-run between the server and its broker
		t.Run(fmt.Sprintf("report=%v", report), func(t *testing.T) {
			checkLeaks(t)
			l := newLocal(t, true)
			l.env = []string{"XDG_RUNTIME_DIR=" + l.dir}
			argv := l.as("daemon", []string{"redis-server", "--port", port, "--save", "", "--dir", l.dir})
			if !report {
				at := slices.Index(argv, "--report")
				argv = slices.Delete(argv, at, at+2)
				l.reports = nil
			}
			s := startIn(t, l.ns, nil, argv...)
			s.listens(t, port)
			keep := startIn(t, l.ns, nil, l.exnRun, "--loopback", "--", programPath("sleep"), "1000")
			direct := func() bool {
				client := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
				client.run(t, "redis-benchmark", "-p", port, "-n", "20000", "-c", "1", "-t", "get", "-q")
				return slices.ContainsFunc(client.connections(t), func(c exnrun.Record) bool { return c.Path == "direct" })
			}
			for end := time.Now().Add(hangTime); !direct(); {
				if time.Now().After(end) {
					t.Fatal("no connection of root's becomes direct")
				}
			}
			s.end(t)
			keep.stop()
			users, err := filepath.Glob(filepath.Join(l.dir, "exn/ds/*.sock"))
			if err != nil || len(users) != 1 {
				t.Fatalf("the user's broker has %q (%v)", users, err)
			}
			if err := endBrokerAt(users[0]); err != nil {
				t.Error(err)
			}
			if report {
				l.check(t, expect{"redis-server", true, 1, 0})
			}
		})
	}
}

// The program that exn-run becomes has no child but its own: the broker is init's.
func TestRootRunNoChild(t *testing.T) {
	longtest.Skip(t)
	needRun(t)
	checkLeaks(t)
	l := newLocal(t, true)
	out, err := runIn(t, l.ns, nil, l.exnRun, "--loopback", "--", "sh", "-c", `read -r c </proc/$$/task/$$/children; echo "children [$c]"`)
	if err != nil || !strings.HasSuffix(out, "children []\n") {
		t.Errorf("%v, %q", err, out)
	}
}
