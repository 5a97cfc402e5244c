package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// dnsperfPair is unbound, which answers from its own data, under dnsperf, which has up to 100
// queries on their way. Each fourth asks for a name that there is not.
func dnsperfPair() Pair {
	return Pair{
		Name: "dnsperf-unbound", about: "DNS over UDP, one socket, answers of unbound's own (if --only names it)", unit: "1/s", size: 31, streams: 1, udp: true,
		needs:  []string{"dnsperf", "unbound"},
		server: unboundServer,
		client: func(e *end) []string {
			return []string{"dnsperf", "-s", e.host, "-p", e.port, "-d", queries(e), "-l", e.seconds()}
		},
		parse: parseDnsperf,
	}
}

// queries is the file of what dnsperf asks for.
func queries(e *end) string { return filepath.Join(e.dir, "queries") }

// unboundServer prepares a directory, a configuration and the queries.
func unboundServer(e *end) ([]string, error) {
	config := fmt.Sprintf(`server:
	interface: %[1]s
	port: %[2]s
	access-control: %[1]s/32 allow
	do-daemonize: no
	username: ""
	chroot: ""
	pidfile: ""
	directory: "%[3]s"
	use-syslog: no
	num-threads: 1
	module-config: "iterator"
	local-zone: "example.com." static
	local-data: "example.com. A 192.0.2.1"
	local-data: "a.example.com. A 192.0.2.2"
	local-data: "b.example.com. A 192.0.2.3"
`, e.host, e.port, e.dir)
	path := filepath.Join(e.dir, "unbound.conf")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(queries(e), []byte("example.com A\na.example.com A\nb.example.com A\nc.example.com A\n"), 0o644); err != nil {
		return nil, err
	}
	return []string{fileOf("unbound"), "-c", path}, nil
}

var (
	dnsperfRate  = regexp.MustCompile(`Queries per second: *([0-9.]+)`)
	dnsperfCodes = regexp.MustCompile(`(?m)^ *Response codes: *(.*)$`)
	dnsperfCode  = regexp.MustCompile(`([A-Z]+) \d+`)
	dnsperfLost  = regexp.MustCompile(`Queries lost: *([0-9]+)`)
)

// parseDnsperf takes no run in which answers were lost or were errors.
func parseDnsperf(stdout string) (s sample, err error) {
	m, lost, codes := dnsperfRate.FindStringSubmatch(stdout), dnsperfLost.FindStringSubmatch(stdout), dnsperfCodes.FindStringSubmatch(stdout)
	if m == nil || lost == nil || codes == nil {
		return s, errNoFigure
	}
	if lost[1] != "0" {
		return s, errors.New("dnsperf lost " + lost[1] + " answers")
	}
	for _, code := range dnsperfCode.FindAllStringSubmatch(codes[1], -1) {
		if code[1] != "NOERROR" && code[1] != "NXDOMAIN" {
			return s, errors.New("dnsperf met " + code[1])
		}
	}
	s.value = number(m[1])
	return s, nil
}
