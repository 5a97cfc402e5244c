package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// haproxyPair is nginx behind HAProxy, both with kept connections.
func haproxyPair() Pair {
	return Pair{
		Name: "haproxy-nginx", about: "wrk, HAProxy, nginx: 1 KiB over 50 kept connections (if --only names it)", unit: "1/s", size: 1024,
		streams: 50,
		needs:   []string{"haproxy", "nginx", "wrk"}, bridged: true,
		behind: func(e *end) ([]string, error) { return nginxServer(e, e.backHost, e.backPort) },
		server: haproxyServer,
		client: func(e *end) []string {
			return []string{"wrk", "-t", "1", "-c", "50", "-d", e.seconds() + "s", "--latency", "http://" + e.host + ":" + e.port + "/file"}
		},
		parse: parseWrk,
	}
}

// haproxyServer prepares a configuration.
func haproxyServer(e *end) ([]string, error) {
	config := fmt.Sprintf(`global
	nbthread 1
	maxconn 1000
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	http-reuse always
frontend front
	bind %s:%s
	default_backend back
backend back
	server nginx %s:%s
`, e.host, e.port, e.backHost, e.backPort)
	path := filepath.Join(e.dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	return []string{fileOf("haproxy"), "-db", "-f", path}, nil
}

// pgbenchLog is the prefix of the files in which pgbench notes how long transactions took.
func pgbenchLog(e *end) string { return filepath.Join(e.dir, "transactions") }

// pgbenchTimes takes the latencies from the last run's files, and removes them.
func pgbenchTimes(e *end) (p50, p99 float64, err error) {
	files, err := filepath.Glob(pgbenchLog(e) + ".*")
	if err != nil {
		return 0, 0, err
	}
	var times []float64
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, 0, err
		}
		if err := os.Remove(path); err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(text)) { // client, transaction, microseconds, ...
			f := strings.Fields(line)
			if len(f) < 3 {
				continue
			}
			us, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", path, err)
			}
			times = append(times, us)
		}
	}
	if len(times) == 0 {
		return 0, 0, errNoFigure
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}
