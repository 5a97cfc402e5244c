package programs

import (
	"strings"

	"exnet/cmd/dsbench/internal/measure"
)

// Pair is a measure: a server, a client, and the figure that the client prints. A word in
// braces, in a command line or a file, stands for a value of the end that uses it
// (end.expandWords).
type Pair struct {
	Name    string // of the measure
	about   string
	unit    string
	size    int    // bytes of a message
	streams int    // connections
	needs   string // programs

	bound     bool // both ends are bound to a CPU
	oneCPU    bool // to the same one
	exnGo     bool // needs are Go programs that exn-go built
	plainPeer bool // the server is not under exn-run in either path
	short     bool // its connections end too early to be direct
	udp       bool // the client speaks UDP
	named     bool // it is measured over loopback only if --only names it
	bridged   bool // it can be measured between namespaces, --network bridge

	server, client string
	behind         string // the server behind a server that is a proxy; "": there is none
	bridgeClient   string // in place of client between namespaces; "": the same
	user           string // whose the server and before are, if this is root; "": root's
	before         string // what runs before the server; "": nothing
	prepare        string // what runs when it listens, again while it says "starting up"
	perSecond      int    // {count} of a client that takes no time, for a second on TCP
	faster         int    // so many times as much with --direct-only; 0: once
	files          map[string]string
	said           output

	// times returns the latencies of the last run between namespaces, in microseconds, of a client
	// that does not print them; nil: it does, or does not know them.
	times func(*end) (p50, p99 float64, err error)
}

// variant returns another measure by nearly the same programs.
func (p Pair) variant(name, about string, change func(*Pair)) Pair {
	p.Name, p.about = name, about
	change(&p)
	return p
}

// What clients print.
var (
	iperfSays = output{value: measure.Iperf3Rate, per: 1e9, refuse: `"error":\s*"[^"]*`}
	sockSays  = output{value: `percentile 50\.000 = *([0-9.]+)`, p50: `percentile 50\.000 = *([0-9.]+)`, p99: `percentile 99\.000 = *([0-9.]+)`}
	// The columns are the rate, and milliseconds: average, least, p50, p95, p99, most.
	redisSays = output{value: `"GET","([0-9.]+)"`, p50: `"GET"(?:,"[^"]*"){3},"([0-9.]+)"`, p99: `"GET"(?:,"[^"]*"){5},"([0-9.]+)"`, times: 1000}
	wrkSays   = output{value: `Requests/sec: *([0-9.]+)`, p50: `(?m)^ *50% +([0-9.]+)(us|ms|s)`, p99: `(?m)^ *99% +([0-9.]+)(us|ms|s)`,
		refuse: `Socket errors.*|Non-2xx.*`}
	heySays = output{value: `Requests/sec:\s*([0-9.]+)`, p50: `50%+ in ([0-9.]+) (s)ecs`, p99: `99%+ in ([0-9.]+) (s)ecs`,
		refuse: `Error distribution|\[(?:[013-9]\d\d|2[1-9]\d|20[1-9])\]\s*\d+ responses`}
	echoSays    = output{value: `^([0-9.]+) requests/s`, p50: `p50 ([0-9.]+) us`, p99: `p99 ([0-9.]+) us`}
	pgbenchSays = output{value: `tps = ([0-9.]+)`}
	loopSays    = output{value: `^([0-9]+)`, per: 1000}
	dnsSays     = output{value: `Response codes: +(?:(?:NOERROR|NXDOMAIN) \d+ \([0-9.]+%\)(?:, )?)+\n(?s:.*)Queries per second: *([0-9.]+)`,
		refuse: `Queries lost: *[1-9]\d*`}
)

// kibibyte is the file that servers of HTTP have.
var kibibyte = strings.Repeat("0123456789abcde\n", 64)

// nginxConf is for nginx at an address. Root's worker is another user's than the master, as usual.
func nginxConf(addr string) map[string]string {
	return map[string]string{"file": kibibyte, "nginx.conf": `daemon off; {nobody} worker_processes 1; pid {dir}/nginx.pid; error_log stderr;
events { worker_connections 512; }
http {
	access_log off; keepalive_requests 1000000000; sendfile on;
	client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
	uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
	server { listen ` + addr + `; root {dir}; }
}
`}
}

// redisLoop starts a client for each request, and prints how many it has started in 1000 s.
const redisLoop = `n=0 begin=$(date +%s%N) end=$((begin+$3*1000000000)) now=$begin
while [ $now -lt $end ]; do redis-cli -h $1 -p $2 ping >/dev/null || exit; n=$((n+1)) now=$(date +%s%N); done
echo $((n*1000000000000/(now-begin)))
`

// allPairs lists the measures, in the order of the help text.
func allPairs() []Pair {
	iperf := Pair{
		Name: "iperf3", about: "one stream, 128 KiB writes, an end on each CPU", unit: "Gbit/s", size: 131072, streams: 1,
		needs: "iperf3 taskset", bound: true,
		server: "iperf3 -s -p {port}", client: "iperf3 -J -c {host} -p {port} -t {seconds}", said: iperfSays,
	}
	// By default sockperf has room for 600,000 messages a second.
	sockperf := Pair{
		Name: "sockperf", about: "half round trip of 64 bytes, an end on each CPU", unit: "us", size: 64, streams: 1,
		needs: "sockperf taskset", bound: true,
		server: "sockperf sr --tcp -i {host} -p {port}", client: "sockperf pp --tcp -i {host} -p {port} -m 64 -t {seconds} --mps=20000000", said: sockSays,
	}
	redis := Pair{
		Name: "redis-benchmark", about: "GET of 3 bytes, 50 clients, no pipelining", unit: "1/s", size: 3, streams: 50,
		needs: "redis-server redis-benchmark", bridged: true, perSecond: 50000, faster: 8,
		server: "redis-server --bind {host} --protected-mode no --port {port} --save '' --appendonly no --dir {dir}",
		client: "redis-benchmark -h {host} -p {port} -c 50 -n {count} -t get --csv", said: redisSays,
	}
	nginx := Pair{
		Name: "nginx-wrk", about: "1 KiB over 50 keep-alive connections, one worker", unit: "1/s", size: 1024, streams: 50,
		needs: "nginx wrk", bridged: true, files: nginxConf("{host}:{port}"),
		server: "nginx -c {dir}/nginx.conf -p {dir}", client: "wrk -t 1 -c 50 -d {seconds}s --latency http://{host}:{port}/file", said: wrkSays,
	}
	pgbench := Pair{
		Name: "pgbench", about: "PostgreSQL, select only, 8 clients", unit: "1/s", streams: 8,
		needs: "initdb postgres pgbench", bridged: true, user: "postgres",
		files:        map[string]string{"hba.conf": "host all all {host}/24 trust\nlocal all all trust\n"},
		before:       "initdb -D {dir}/db -A trust -U bench --no-sync",
		server:       "postgres -D {dir}/db -p {port} -h {host} -k {dir} -c fsync=off -c hba_file={dir}/hba.conf",
		prepare:      "pgbench -h {host} -p {port} -U bench -i -q postgres",
		client:       "pgbench -h {host} -p {port} -U bench -S -n -c 8 -j 1 -T {seconds} postgres",
		bridgeClient: "pgbench -h {host} -p {port} -U bench -S -n -c 8 -j 1 -T {seconds} -l --sampling-rate=0.05 --log-prefix={dir}/" + pgbenchLog + " postgres",
		said:         pgbenchSays, times: pgbenchTimes,
	}
	return []Pair{
		iperf,
		iperf.variant("iperf3-4", "four streams, wherever the scheduler puts them", func(p *Pair) { p.streams, p.bound, p.client = 4, false, p.client+" -P 4" }),
		sockperf,
		sockperf.variant("sockperf-one-cpu", "the same, both ends on one CPU", func(p *Pair) {
			p.oneCPU, p.client = true, strings.TrimSuffix(p.client, " --mps=20000000")
		}),
		redis, nginx, pgbench,
		iperf.variant("iperf3-plain-peer", "the same against a server without exn-run", func(p *Pair) { p.plainPeer = true }),
		{
			Name: "caddy-hey", about: "Caddy serves 1 KiB over 8 keep-alive connections", unit: "1/s", size: 1024, streams: 8,
			needs: "caddy hey", exnGo: true,
			files: map[string]string{"file": kibibyte,
				"Caddyfile": "{\n\tadmin off\n\tauto_https off\n}\nhttp://{host}:{port} {\n\troot * {dir}\n\tfile_server\n}\n"},
			server: "caddy run --config {dir}/Caddyfile --adapter caddyfile", client: "hey -c 8 -z {seconds}s http://{host}:{port}/file", said: heySays,
		},
		{
			Name: "goecho-8", about: "64 bytes to and fro by package net, 8 connections", unit: "1/s", size: 64, streams: 8,
			needs: "goecho", exnGo: true, bridged: true,
			server: "goecho -listen {host}:{port}", client: "goecho -c 8 -t {seconds} {host}:{port}", said: echoSays,
		},
		redis.variant("redis-reconnect", "a connection for each GET", func(p *Pair) {
			p.named, p.short, p.perSecond, p.faster = true, true, 10000, 1
			p.client = "redis-benchmark -h {host} -p {port} -c 50 -n {count} -k 0 -t get --csv"
		}),
		nginx.variant("nginx-close", "a connection for each request of 1 KiB", func(p *Pair) {
			p.named, p.short, p.client = true, true, p.client+" -H 'Connection: close'"
		}),
		redis.variant("redis-cli", "one PING a program: its start, its first connection", func(p *Pair) {
			p.named, p.short, p.streams, p.needs, p.said = true, true, 1, "redis-server redis-cli", loopSays
			p.perSecond, p.files, p.client = 0, map[string]string{"loop.sh": redisLoop}, "sh {dir}/loop.sh {host} {port} {seconds}"
		}),
		nginx.variant("haproxy-nginx", "wrk, HAProxy, nginx: 1 KiB over 50 kept connections", func(p *Pair) {
			p.named, p.needs, p.behind, p.server = true, "haproxy nginx wrk", p.server, "haproxy -db -f {dir}/haproxy.cfg"
			p.files = nginxConf("{backHost}:{backPort}")
			p.files["haproxy.cfg"] = `global
	nbthread 1
	maxconn 1000
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	http-reuse always
frontend front
	bind {host}:{port}
	default_backend back
backend back
	server nginx {backHost}:{backPort}
`
		}),
		{ // each fourth query is for a name that there is not
			Name: "dnsperf-unbound", about: "DNS over UDP, one socket, answers of unbound's own", unit: "1/s", size: 31, streams: 1,
			needs: "dnsperf unbound", udp: true, named: true,
			files: map[string]string{"queries": "example.com A\na.example.com A\nb.example.com A\nc.example.com A\n", "unbound.conf": `server:
	interface: {host}
	port: {port}
	access-control: {host}/32 allow
	do-daemonize: no
	username: ""
	chroot: ""
	pidfile: ""
	directory: "{dir}"
	use-syslog: no
	num-threads: 1
	module-config: "iterator"
	local-zone: "example.com." static
	local-data: "example.com. A 192.0.2.1"
	local-data: "a.example.com. A 192.0.2.2"
	local-data: "b.example.com. A 192.0.2.3"
`},
			server: "unbound -c {dir}/unbound.conf", client: "dnsperf -s {host} -p {port} -d {dir}/queries -l {seconds}", said: dnsSays,
		},
	}
}
