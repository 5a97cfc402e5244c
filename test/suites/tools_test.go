package suites

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// toolScenarios are programs that measure, resolve names, pass messages, keep sources and transfer
// files. They are all for -full or by name.
func toolScenarios() []scenario {
	port := strconv.Itoa(frontPort)
	return append(netcatScenarios(), []scenario{
		{
			name: "bind9", long: true, // libuv's loops in threads
			needs: map[string]string{"named": "bind9", "dig": "bind9-dnsutils", "dnsperf": "dnsperf"},
			serve: serveNames, check: checkNames,
			load: func(s *stage) { dnsperf(s, size(5000, 20000)) },
		},
		{
			name: "mosquitto", long: true,
			needs: map[string]string{"mosquitto": "mosquitto", "mosquitto_pub": "mosquitto-clients"},
			serve: func(s *stage) {
				s.server(frontPort, "mosquitto", "-c", s.file("mosquitto.conf", fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nuser root\n", frontPort)))
			},
			check: checkMosquitto,
		},
		{
			name: "erlang", long: true, // its own poll threads, scheduler, and driver
			needs: map[string]string{"escript": "erlang-base", "python3": "python3"},
			serve: func(s *stage) {
				s.server(frontPort, "escript", s.script("echo.erl"), port)
			},
			check: func(s *stage) { s.do(python, s.script("echo.py"), "client", port, strconv.Itoa(size(8<<20, 64<<20))) },
		},
		{
			name: "beanstalkd", long: true,
			needs: map[string]string{"beanstalkd": "beanstalkd", "python3": "python3"},
			serve: func(s *stage) { s.server(frontPort, "beanstalkd", "-l", "127.0.0.1", "-p", port, "-z", "1000000") },
			check: func(s *stage) { s.do(python, s.script("beanstalk.py"), port, strconv.Itoa(size(300, 5000))) },
		},
		{
			name: "iperf", long: true, // version 2: threads
			needs: map[string]string{"iperf": "iperf"},
			serve: func(s *stage) { s.server(frontPort, "iperf", "-s", "-B", "127.0.0.1", "-p", port) },
			check: func(s *stage) {
				out := s.do("iperf", "-c", "127.0.0.1", "-p", port, "-n", "64M", "-P", "4", "-f", "b", "-y", "C")
				for line := range strings.Lines(strings.TrimSpace(out)) {
					if f := strings.Split(line, ","); len(f) < 8 || f[5] != "-1" && f[7] != "67108864" {
						s.Errorf("iperf: %s", line)
					}
				}
			},
		},
		{
			name: "nuttcp", long: true,
			needs: map[string]string{"nuttcp": "nuttcp"},
			serve: func(s *stage) {
				s.server(frontPort, "nuttcp", "-S", "--nofork", "-4", "-P", port, "-p", strconv.Itoa(otherPort))
			},
			check: func(s *stage) {
				for _, way := range []string{"-t", "-r"} {
					if out := s.do("nuttcp", way, "-4", "-n", "128m", "-N", "2", "-P", port, "-p", strconv.Itoa(otherPort), "127.0.0.1"); !strings.Contains(out, "128.0") {
						s.Errorf("nuttcp %s: %s", way, out)
					}
				}
			},
		},
		{
			name: "netperf", long: true, // the server forks for each test
			needs: map[string]string{"netperf": "netperf", "netserver": "netperf"},
			serve: func(s *stage) { s.server(frontPort, "netserver", "-D", "-4", "-L", "127.0.0.1", "-p", port) },
			check: func(s *stage) {
				for _, kind := range []string{"TCP_STREAM", "TCP_MAERTS", "TCP_SENDFILE", "TCP_RR", "TCP_CRR"} {
					s.do("netperf", "-4", "-H", "127.0.0.1", "-p", port, "-t", kind, "-l", "1", "-F", s.random("file", 1<<20))
				}
			},
		},
		{
			name: "git", long: true, // a daemon that executes a program for each connection, with it as standard streams
			needs: map[string]string{"/usr/lib/git-core/git-daemon": "git"},
			tcp:   "several processes have the connection",
			serve: serveGit, check: checkGit,
		},
		{
			name: "svn", long: true, // forks
			needs: map[string]string{"svnserve": "subversion", "svn": "subversion"},
			serve: func(s *stage) {
				s.prepare("sh", "-c", `svnadmin create repo && printf '[general]\nanon-access = write\n' > repo/conf/svnserve.conf`)
				s.server(frontPort, "svnserve", "-d", "--foreground", "-r", s.dir, "--listen-host", "127.0.0.1", "--listen-port", port)
			},
			check: func(s *stage) {
				file := s.random("file", size(8, 64)<<20)
				s.do("sh", "-c", `set -e; rm -rf a b; svn -q co "$1" a; cp file a/f$$; cd a; svn -q add f$$; svn -q ci -m one --username x; cd ..; svn -q co "$1" b; cp b/f$$ got; rm -rf a b`,
					"svn", fmt.Sprintf("svn://127.0.0.1:%d/repo", frontPort))
				s.same(s.path("got"), file)
			},
		},
		{
			name: "proftpd", long: true, // forks, changes users, and listens for each transfer
			needs: map[string]string{"proftpd": "proftpd-core", "lftp": "lftp", "curl": "curl"},
			serve: serveProFTP, check: checkProFTP,
		},
		{
			name: "inetd", long: true, // socat executes cat for each connection
			needs: map[string]string{"socat": "socat", "python3": "python3"},
			serve: func(s *stage) {
				s.server(frontPort, "socat", fmt.Sprintf("TCP4-LISTEN:%d,bind=127.0.0.1,fork,reuseaddr", frontPort), "EXEC:cat,nofork")
			},
			check: func(s *stage) { s.do(python, s.script("echo.py"), "client", port, strconv.Itoa(size(8<<20, 64<<20))) },
		},
		{
			name: "samba", long: true,
			needs: map[string]string{"smbd": "samba", "smbclient": "smbclient"},
			serve: serveSamba, check: checkSamba,
		},
	}...)
}

// netcatScenarios send a file by each netcat to each.
func netcatScenarios() []scenario {
	servers := map[string]string{
		"openbsd":     `exec nc.openbsd -l -d 127.0.0.1 "$1" > "$2"`,
		"traditional": `exec nc.traditional -l -p "$1" > "$2" < /dev/null`,
		"socat":       `exec socat -u "TCP4-LISTEN:$1,bind=127.0.0.1" "CREATE:$2"`,
		"ncat":        `exec ncat -l --recv-only 127.0.0.1 "$1" > "$2"`,
	}
	clients := map[string]string{
		"openbsd":     `exec nc.openbsd -N 127.0.0.1 "$1" < "$2"`,
		"traditional": `exec nc.traditional -q 0 127.0.0.1 "$1" < "$2"`,
		"socat":       `exec socat -u "OPEN:$2" "TCP4:127.0.0.1:$1"`,
		"ncat":        `exec ncat --send-only 127.0.0.1 "$1" < "$2"`,
	}
	var all []scenario
	for _, to := range []string{"openbsd", "traditional", "socat", "ncat"} {
		all = append(all, scenario{
			name: "netcat-to-" + to, long: true,
			needs: map[string]string{"nc.openbsd": "netcat-openbsd", "nc.traditional": "netcat-traditional", "socat": "socat", "ncat": "ncat"},
			tcp:   "it closes its listener when it has accepted, before the broker may have come to it",
			serve: func(*stage) {},
			check: func(s *stage) {
				for _, from := range []string{"openbsd", "traditional", "socat", "ncat"} {
					if from == "traditional" && to == "ncat" {
						continue // which ends its direction at once, upon which the client ends
					}
					transfer(s, []string{"sh", "-c", servers[to], to, strconv.Itoa(frontPort), s.path("got")}, func(file string) []string {
						return []string{"sh", "-c", clients[from], from, strconv.Itoa(frontPort), file}
					})
				}
			},
		})
	}
	return all
}

func serveNames(s *stage) {
	var zone strings.Builder
	zone.WriteString("$TTL 60\n@ IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n")
	for i := range 5000 {
		fmt.Fprintf(&zone, "h%d IN A 10.%d.%d.1\n", i, i/250, i%250)
	}
	for i := range 200 {
		fmt.Fprintf(&zone, "big IN TXT \"%d %s\"\n", i, strings.Repeat("x", 200))
	}
	s.file("zone", zone.String())
	s.server(frontPort, "named", "-g", "-c", s.file("named.conf", s.expand(`options {
	directory "/tmp"; pid-file none; listen-on port `+strconv.Itoa(frontPort)+` { 127.0.0.1; }; listen-on-v6 { none; };
	recursion no; max-records-per-type 0; dnssec-validation no; allow-transfer { any; }; tcp-clients 200; session-keyfile none;
};
controls { };
zone "test" { type primary; file "$RUN/zone"; };
`)))
}

func checkNames(s *stage) {
	s.Helper()
	dig := func(args ...string) string {
		s.Helper()
		return s.do(append([]string{"dig", "+tcp", "+short", "+time=60", "+tries=1", "@127.0.0.1", "-p", strconv.Itoa(frontPort)}, args...)...)
	}
	s.prepare("sh", "-c", `until dig +short "@127.0.0.1" -p "$1" test SOA | grep -q ns; do sleep 0.1; done`, "sh", strconv.Itoa(frontPort)) // it listens first
	if got := strings.Count(dig("big.test", "TXT"), "x\"\n"); got != 200 {
		s.Errorf("dig got %d of 200 texts", got)
	}
	out := s.do("dig", "+tcp", "+time=60", "+tries=1", "@127.0.0.1", "-p", strconv.Itoa(frontPort), "test", "AXFR")
	if got := strings.Count(out, "\tA\t10."); got != 5000 {
		s.Errorf("AXFR has %d of 5000 addresses", got)
	}
	dnsperf(s, size(5000, 50000))
}

// dnsperf asks n questions on 10 connections.
func dnsperf(s *stage, n int) {
	s.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "h%d.test A\n", i%5000)
	}
	out := s.do("dnsperf", "-m", "tcp", "-s", "127.0.0.1", "-p", strconv.Itoa(frontPort), "-d", s.file("questions", text.String()), "-n", "1", "-c", "10", "-T", "2", "-q", "100", "-t", "60")
	for _, want := range []string{fmt.Sprintf("NOERROR %d (100.00%%)", n), fmt.Sprintf("Queries completed:    %d (100.00%%)", n)} {
		if !strings.Contains(out, want) {
			s.Errorf("dnsperf does not say %q:\n%s", want, out)
		}
	}
}

// checkMosquitto stores messages with the server, and reads them: large ones, and many small ones
// in order.
func checkMosquitto(s *stage) {
	s.Helper()
	port := strconv.Itoa(frontPort)
	big := s.random("message", 4<<20)
	for i := range 5 {
		topic := fmt.Sprintf("big/%d", i)
		s.do("mosquitto_pub", "-p", port, "-r", "-q", "1", "-t", topic, "-f", big)
		s.do("sh", "-c", `exec mosquitto_sub -p "$1" -t "$2" -C 1 -N > got`, "sh", port, topic)
		s.same(s.path("got"), big)
	}
	var lines strings.Builder
	n := size(3000, 50000)
	for i := range n {
		fmt.Fprintf(&lines, "message %d\n", i)
	}
	s.file("lines", lines.String())
	sub := []string{"mosquitto_sub", "-p", port, "-c", "-i", "reader", "-q", "1", "-t", "lines"}
	s.do(append(sub, "-E")...)
	s.do("sh", "-c", `exec mosquitto_pub -p "$1" -q 1 -t lines -l < lines`, "sh", port)
	if got := s.do(append(sub, "-C", strconv.Itoa(n), "-W", "240")...); got != lines.String() {
		s.Errorf("%d bytes of messages came that are not the %d that were sent", len(got), lines.Len())
	}
}

func serveGit(s *stage) {
	s.random("repo/data", 8<<20)
	s.prepare("sh", "-c", `set -e; cd repo; git init -q; git add data; git -c user.name=n -c user.email=e commit -qm data; cd ..
		git clone -q --bare repo bare; git config --global --add safe.directory '*'`)
	s.server(frontPort, "git", "daemon", "--base-path="+s.dir, "--export-all", "--enable=receive-pack", "--listen=127.0.0.1", "--port="+strconv.Itoa(frontPort), "--reuseaddr", "--log-destination=none")
}

func checkGit(s *stage) {
	s.Helper()
	s.random("up", 4<<20)
	s.do("sh", "-c", `set -e; rm -rf a b; git clone -q "$1" a; cp a/data got; cp up a/up$$; cd a; git add up$$; git -c user.name=n -c user.email=e commit -qm up
		git push -q origin HEAD; cd ..; git clone -q "$1" b; cp b/up$$ got2`, "git", fmt.Sprintf("git://127.0.0.1:%d/bare", frontPort))
	s.same(s.path("got"), s.path("repo/data"))
	s.same(s.path("got2"), s.path("up"))
}

func serveProFTP(s *stage) {
	s.random("ftp/down", size(16, 128)<<20)
	s.prepare("sh", "-c", `mkdir -p own ftp/in && chown -R nobody ftp && chmod -R a+rX ftp`)
	s.server(frontPort, "proftpd", "-n", "-q", "-c", s.file("proftpd.conf", s.expand(`ServerType standalone
ServerName test
DefaultServer on
DefaultAddress 127.0.0.1
SocketBindTight on
Port `+strconv.Itoa(frontPort)+`
User nobody
Group nogroup
PidFile $RUN/own/pid
ScoreboardFile $RUN/own/scoreboard
WtmpLog off
TransferLog none
SystemLog $RUN/own/log
DelayEngine off
UseIPv6 off
UseReverseDNS off
AuthOrder mod_auth_unix.c
<Anonymous $RUN/ftp>
	User nobody
	Group nogroup
	UserAlias anonymous nobody
	RequireValidShell off
	UseFtpUsers off
	AnonRequirePassword off
	AllowOverwrite on
</Anonymous>
`)))
}

func checkProFTP(s *stage) {
	s.Helper()
	up := s.random("up", size(16, 128)<<20)
	url := fmt.Sprintf("ftp://127.0.0.1:%d/", frontPort)
	s.do("curl", "-fsS", "-T", up, url+"in/up")
	s.same(s.path("ftp/in/up"), up)
	s.prepare("rm", "-f", s.path("got"), s.path("ftp/in/up2"))
	s.do("lftp", "-e", "set ftp:sync-mode on; set net:max-retries 1; pget -n 4 down -o got; put up -o in/up2; cls -l; bye", "-u", "anonymous,x", url)
	s.same(s.path("got"), s.path("ftp/down"))
	s.same(s.path("ftp/in/up2"), up)
}

func serveSamba(s *stage) {
	s.random("share/down", size(16, 128)<<20)
	s.prepare("sh", "-c", `mkdir -p smb && chmod 777 share`)
	s.server(frontPort, "smbd", "-F", "--no-process-group", "-p", strconv.Itoa(frontPort), "-s", s.file("smb.conf", s.expand(`[global]
server role = standalone server
map to guest = bad user
guest account = nobody
interfaces = lo
bind interfaces only = yes
disable netbios = yes
smb ports = `+strconv.Itoa(frontPort)+`
private dir = $RUN/smb
lock directory = $RUN/smb
state directory = $RUN/smb
cache directory = $RUN/smb
pid directory = $RUN/smb
ncalrpc dir = $RUN/smb/rpc
log file = $RUN/error.log
load printers = no
use sendfile = yes
[share]
path = $RUN/share
guest ok = yes
read only = no
`)))
}

func checkSamba(s *stage) {
	s.Helper()
	up := s.random("up", size(16, 128)<<20)
	s.do("smbclient", "-s", "/dev/null", "-p", strconv.Itoa(frontPort), "-N", "//127.0.0.1/share", "-c", fmt.Sprintf("get down %s; put %s up", s.path("got"), up))
	s.same(s.path("got"), s.path("share/down"))
	s.same(s.path("share/up"), up)
	if err := os.Remove(s.path("share/up")); err != nil {
		s.Error(err)
	}
}
