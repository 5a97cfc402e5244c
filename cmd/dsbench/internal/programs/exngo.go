package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"exnet/internal/mark"
)

// goPairs are pairs of Go programs. Both have to be built by exn-go; without exn-run they
// are plain.
func goPairs() []Pair {
	nats := Pair{
		Name: "nats-bench", about: "NATS, one publisher, 128 bytes", unit: "1/s", size: 128, streams: 1,
		needs: []string{"nats-server", "nats"}, exnGo: true,
		server: func(e *end) ([]string, error) {
			return []string{"nats-server", "-a", "127.0.0.1", "-p", e.port}, nil
		},
		client: func(e *end) []string {
			// It takes a number of messages, not a time: about the time on TCP.
			n := int(e.o.duration.Seconds() * 1e6)
			return []string{"nats", "-s", "nats://127.0.0.1:" + e.port, "bench", "pub", "dsbench", "--msgs", strconv.Itoa(n), "--size", "128", "--no-progress"}
		},
		parse: parseNats,
	}
	// Not /healthz, which says 500 when the server waits for a millisecond.
	hey := Pair{
		Name: "hey", about: "HTTP of two Go programs, 50 keep-alive connections", unit: "1/s", size: 153, streams: 50,
		needs: []string{"nats-server", "hey"}, exnGo: true,
		server: func(e *end) ([]string, error) {
			return []string{"nats-server", "-a", "127.0.0.1", "-p", "-1", "-m", e.port}, nil
		},
		client: func(e *end) []string {
			return []string{"hey", "-c", "50", "-z", e.seconds() + "s", "http://127.0.0.1:" + e.port + "/leafz"}
		},
		parse: parseHey,
	}
	hey1 := hey
	hey1.Name, hey1.about, hey1.streams = "hey-1", "the same, one connection", 1
	hey1.client = func(e *end) []string {
		return []string{"hey", "-c", "1", "-z", e.seconds() + "s", "http://127.0.0.1:" + e.port + "/leafz"}
	}
	heyPlain := hey
	heyPlain.Name, heyPlain.about, heyPlain.plainPeer = "hey-plain-peer", "hey against a server without exn-run", true
	pairs := []Pair{nats, hey, hey1, heyPlain, caddyHey(), etcdPut()}
	for _, streams := range []int{1, 8, 64} {
		pairs = append(pairs, goEcho("goecho", streams), goEcho("gohttp", streams, "-http"))
	}
	return pairs
}

// caddyHey is Caddy, which serves a file.
func caddyHey() Pair {
	return Pair{
		Name: "caddy-hey", about: "Caddy serves 1 KiB over 8 keep-alive connections", unit: "1/s", size: 1024, streams: 8,
		needs: []string{"caddy", "hey"}, exnGo: true,
		server: caddyServer,
		client: func(e *end) []string {
			return []string{"hey", "-c", "8", "-z", e.seconds() + "s", "http://127.0.0.1:" + e.port + "/file"}
		},
		parse: parseHey,
	}
}

// caddyServer prepares a directory and a configuration.
func caddyServer(e *end) ([]string, error) {
	config := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://127.0.0.1:%s {\n\troot * %s\n\tfile_server\n}\n", e.port, e.dir)
	path := filepath.Join(e.dir, "Caddyfile")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(e.dir, "file"), []byte(strings.Repeat("0123456789abcde\n", 64)), 0o644); err != nil {
		return nil, err
	}
	return []string{"caddy", "run", "--config", path, "--adapter", "caddyfile"}, nil
}

// etcdPut is etcd under its own benchmark, which is gRPC.
func etcdPut() Pair {
	return Pair{
		Name: "etcd-put", about: "etcd's benchmark, 8 connections that put 256 bytes, no fsync", unit: "1/s", size: 256, streams: 8,
		needs: []string{"etcd", "etcd-benchmark"}, exnGo: true,
		server: func(e *end) ([]string, error) {
			url := "http://127.0.0.1:" + e.port
			return []string{"etcd", "--data-dir", filepath.Join(e.dir, "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
				"--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error", "--unsafe-no-fsync"}, nil
		},
		client: func(e *end) []string {
			// It takes a number of requests, not a time: about the time on TCP.
			n := int(e.o.duration.Seconds() * 10000)
			return []string{"etcd-benchmark", "--endpoints", "127.0.0.1:" + e.port, "--conns", "8", "--clients", "8",
				"put", "--val-size", "256", "--total", strconv.Itoa(n)}
		},
		parse: parseHey, // its report is the one that hey's was made of
	}
}

// goEcho is goecho with some connections: package net's, or with args net/http's.
func goEcho(name string, streams int, args ...string) Pair {
	what := map[string]string{"goecho": "package net", "gohttp": "net/http"}[name]
	return Pair{
		Name: fmt.Sprintf("%s-%d", name, streams), about: fmt.Sprintf("64 bytes to and fro by %s, connections: %d", what, streams),
		unit: "1/s", size: 64, streams: streams,
		needs: []string{"goecho"}, exnGo: true, bridged: streams == 8,
		server: func(e *end) ([]string, error) {
			return append(append([]string{"goecho"}, args...), "-listen", e.host+":"+e.port), nil
		},
		client: func(e *end) []string {
			own := append([]string{"goecho"}, args...)
			return append(own, "-c", strconv.Itoa(streams), "-t", e.seconds(), e.host+":"+e.port)
		},
		parse: parseGoEcho,
	}
}

// builtByExnGo says what is wrong with a program that has to be; "": nothing.
func builtByExnGo(name string) string {
	path, err := exec.LookPath(fileOf(name))
	if err != nil {
		return name + " is not installed"
	}
	version, err := mark.Read(path)
	switch {
	case err != nil:
		return err.Error()
	case version == "":
		return name + " is not built by exn-go"
	}
	return ""
}

var (
	natsRate   = regexp.MustCompile(`stats: ([0-9,]+) msgs/sec`)
	heyRate    = regexp.MustCompile(`Requests/sec:\s*([0-9.]+)`)
	heyLatency = regexp.MustCompile(`(50|99)%+ in ([0-9.]+) secs`)
	goEchoLine = regexp.MustCompile(`^([0-9.]+) requests/s, p50 ([0-9.]+) us, p99 ([0-9.]+) us`)
	heyStatus  = regexp.MustCompile(`\[(\d+)\]\s*\d+ responses`)
)

func parseNats(stdout string) (s sample, err error) {
	m := natsRate.FindStringSubmatch(stdout)
	if m == nil {
		return s, errNoFigure
	}
	s.value = number(strings.ReplaceAll(m[1], ",", ""))
	return s, nil
}

func parseGoEcho(stdout string) (s sample, err error) {
	m := goEchoLine.FindStringSubmatch(stdout)
	if m == nil {
		return s, errNoFigure
	}
	return sample{value: number(m[1]), p50: number(m[2]), p99: number(m[3])}, nil
}

func parseHey(stdout string) (s sample, err error) {
	m := heyRate.FindStringSubmatch(stdout)
	if m == nil {
		return s, errNoFigure
	}
	for _, status := range heyStatus.FindAllStringSubmatch(stdout, -1) {
		if status[1] != "200" {
			return s, errors.New("hey met status " + status[1])
		}
	}
	if strings.Contains(stdout, "Error distribution") {
		return s, errors.New("hey met errors")
	}
	s.value = number(m[1])
	for _, m := range heyLatency.FindAllStringSubmatch(stdout, -1) {
		if v := number(m[2]) * 1e6; m[1] == "50" {
			s.p50 = v
		} else {
			s.p99 = v
		}
	}
	return s, nil
}
