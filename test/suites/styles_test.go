package suites

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// styleScenarios are programs whose style of input and output those before do not have: daemons
// that pass descriptors on, coroutines, broadcasts, jobs of other programs. They are all for -full
// or by name.
func styleScenarios() []scenario {
	port := strconv.Itoa(frontPort)
	return append(blockScenarios(), []scenario{
		{
			name: "icecast2", long: true, // one source, and clients that begin in its middle
			needs: map[string]string{"icecast2": "icecast2", "curl": "curl"},
			serve: serveIcecast, check: checkIcecast,
		},
		{
			name: "gearman", long: true, // libgearman at three ends: a client, a server, a worker
			needs: map[string]string{"gearmand": "gearman-job-server", "gearman": "gearman-tools"},
			serve: func(s *stage) {
				s.prepare("sh", "-c", "chmod a+rwx .")
				s.server(frontPort, "gearmand", "-L", "127.0.0.1", "-p", port, "-l", "stderr", "-u", "nobody")
				s.begin("gearman", "-h", "127.0.0.1", "-p", port, "-w", "-f", "turn", "--", "tr", "a-y", "b-z")
			},
			check: checkGearman,
		},
		{
			name: "distcc", long: true, // compiles elsewhere: sendfile, processes that accept from one listener
			needs: map[string]string{"distccd": "distcc", "distcc": "distcc", "gcc": "gcc"},
			serve: func(s *stage) {
				s.server(frontPort, "env", "DISTCC_CMDLIST=", "distccd", "--daemon", "--no-detach", "--listen", "127.0.0.1", "-p", port, "--allow", "127.0.0.0/8",
					"--enable-tcp-insecure", "--log-file", s.path("error.log"), "--user", "nobody")
			},
			check: checkDistcc,
		},
		{
			name: "dante", long: true, // SOCKS: its processes pass each connection on, to the next
			needs: map[string]string{"danted": "dante-server", "nginx": "nginx-light", "curl": "curl"},
			tcp:   "its processes pass their descriptors on",
			serve: func(s *stage) {
				site(s)
				serveNginx(s, backPort, "sendfile on;")
				s.server(frontPort, "danted", "-f", s.file("danted.conf", `logoutput: stderr
internal: 127.0.0.1 port = `+port+`
external: 127.0.0.1
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: nobody
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`))
			},
			check: func(s *stage) {
				for range 5 {
					s.do("curl", "-fsS", "--socks5", "127.0.0.1:"+port, "-o", s.path("got"), fmt.Sprintf("http://127.0.0.1:%d/big", backPort))
					s.same(s.path("got"), s.path("www/big"))
				}
			},
		},
		{
			name: "xvfb", long: true, // the X server, and clients of xcb
			needs: map[string]string{"Xvfb": "xvfb", "xprop": "x11-utils", "xdpyinfo": "x11-utils"},
			serve: func(s *stage) {
				s.server(6007, "Xvfb", ":7", "-listen", "tcp", "-nolisten", "unix", "-nolisten", "local", "-ac", "-noreset", "-screen", "0", "640x480x24")
			},
			check: checkX,
		},
		{
			name: "rsyslog", long: true, // lines from one to the other, and to a file
			needs: map[string]string{"rsyslogd": "rsyslog", "logger": "bsdutils"},
			serve: serveSyslog, check: checkSyslog,
		},
		{
			name: "knot", long: true, // a zone to another server, and by it to a client; all over TCP
			needs: map[string]string{"knotd": "knot", "dig": "bind9-dnsutils"},
			serve: serveKnot, check: checkKnot,
		},
		{
			name: "busybox", long: true, // a process for each connection
			needs: map[string]string{"busybox": "busybox-static", "curl": "curl", "ab": "apache2-utils"},
			tcp:   "it is linked statically",
			serve: func(s *stage) {
				site(s)
				s.server(frontPort, "busybox", "httpd", "-f", "-p", "127.0.0.1:"+port, "-h", s.path("www"))
			},
			check: func(s *stage) { checkWeb(s) },
		},
		{
			name: "axel", long: true, // four connections for a file
			needs: map[string]string{"axel": "axel", "nginx": "nginx-light"},
			tcp:   "it uses TCP Fast Open",
			serve: func(s *stage) { site(s); serveNginx(s, frontPort, "sendfile on;") },
			check: func(s *stage) {
				for range 3 {
					s.prepare("rm", "-f", s.path("got"))
					s.do("axel", "-q", "-n", "4", "-o", s.path("got"), "http://127.0.0.1:"+port+"/big")
					s.same(s.path("got"), s.path("www/big"))
				}
			},
		},
	}...)
}

// blockScenarios are disks served by two makes of server to a client that has many requests under
// way.
func blockScenarios() []scenario {
	disk := func(name string, needs map[string]string, serve func(s *stage, file string)) scenario {
		needs["qemu-img"] = "qemu-utils"
		return scenario{
			name: name, long: true, needs: needs,
			serve: func(s *stage) {
				s.random("disk", size(32, 256)<<20)
				s.prepare("cp", s.path("disk"), s.path("served"))
				serve(s, s.path("served"))
			},
			check: func(s *stage) {
				url := fmt.Sprintf("nbd://127.0.0.1:%d/x", frontPort)
				s.prepare("cp", s.path("disk"), s.path("served"))
				s.do("qemu-img", "convert", "-f", "raw", "-O", "raw", url, s.path("got"))
				s.same(s.path("got"), s.path("disk"))
				s.do("qemu-img", "convert", "-n", "-W", "-m", "16", "-f", "raw", "-O", "raw", s.random("other", size(32, 256)<<20), url)
				s.same(s.path("served"), s.path("other"))
			},
		}
	}
	return []scenario{
		disk("nbd-server", map[string]string{"nbd-server": "nbd-server"}, func(s *stage, file string) {
			s.server(frontPort, "sh", "-c", `trap 'kill $(cat nbd.pid); exit 0' TERM; nbd-server -p "$PWD/nbd.pid" -C "$1"; while :; do sleep 0.1; done`, "sh", s.file("nbd.conf", fmt.Sprintf("[generic]\nuser = root\nlistenaddr = 127.0.0.1\nport = %d\n[x]\nexportname = %s\n", frontPort, file)))
		}),
		disk("qemu-nbd", map[string]string{"qemu-nbd": "qemu-utils"}, func(s *stage, file string) {
			s.server(frontPort, "qemu-nbd", "-t", "-e", "4", "-f", "raw", "-b", "127.0.0.1", "-p", strconv.Itoa(frontPort), "-x", "x", file)
		}),
	}
}

func serveIcecast(s *stage) {
	s.prepare("sh", "-c", "mkdir ice && chmod a+rwx ice")
	s.server(frontPort, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "icecast2", "-c", s.file("icecast.xml", fmt.Sprintf(`<icecast>
<limits><clients>20</clients><sources>2</sources><queue-size>67108864</queue-size><burst-size>65536</burst-size></limits>
<authentication><source-password>x</source-password><admin-user>x</admin-user><admin-password>x</admin-password></authentication>
<hostname>localhost</hostname>
<listen-socket><port>%d</port><bind-address>127.0.0.1</bind-address></listen-socket>
<paths><basedir>%s</basedir><logdir>ice</logdir><webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths>
<logging><accesslog>access.log</accesslog><errorlog>error.log</errorlog><loglevel>1</loglevel></logging>
</icecast>
`, frontPort, s.dir)))
}

// checkIcecast sends a stream and has two clients listen, who get a piece of it without a gap.
func checkIcecast(s *stage) {
	s.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/s", frontPort)
	file := s.random("stream", size(8, 64)<<20)
	source := s.begin("curl", "-sS", "-u", "source:x", "-H", "Content-Type: audio/mpeg", "-H", "Expect:", "--limit-rate", "4M", "-T", file, url)
	s.prepare("sh", "-c", `until curl -sf -m 1 -r 0-0 -o /dev/null "$1" || test $? = 28; do sleep 0.05; done`, "sh", url)
	listen := s.begin("curl", "-sS", "-o", s.path("got1"), url)
	s.do("curl", "-sS", "-o", s.path("got2"), url)
	s.ended(listen)
	s.ended(source)
	s.running = s.running[:1] // the server
	whole, _ := os.ReadFile(file)
	for _, name := range []string{"got1", "got2"} {
		if got, err := os.ReadFile(s.path(name)); err != nil || len(got) < 64<<10 || !bytes.Contains(whole, got) {
			s.Errorf("%s: %d bytes are not a piece of the stream (%v)", name, len(got), err)
		}
	}
}

// checkGearman has a worker change the letters of many jobs. It writes a job to a program before it
// reads what that says, so none is larger than a pipe.
func checkGearman(s *stage) {
	s.Helper()
	var lines, want strings.Builder
	for i := range size(100, 1000) {
		n := i * 977 % 50000
		fmt.Fprintf(&lines, "a%s %d\n", strings.Repeat("k", n), i)
		fmt.Fprintf(&want, "b%s %d", strings.Repeat("l", n), i)
	}
	s.file("lines", lines.String())
	got := s.do("sh", "-c", `exec gearman -n -h 127.0.0.1 -p "$1" -f turn < lines`, "sh", strconv.Itoa(frontPort))
	if strings.ReplaceAll(got, "\n", "") != want.String() {
		s.Errorf("of %d bytes of answers %d came, or others", want.Len(), len(got))
	}
}

// checkDistcc compiles programs elsewhere and compares them with those compiled here.
func checkDistcc(s *stage) {
	s.Helper()
	for i := range size(6, 30) {
		var text strings.Builder
		for n := range 4000 {
			fmt.Fprintf(&text, "const char t%d_%d[] = \"%x\";\n", i, n, n*n*7919)
		}
		name := fmt.Sprintf("c%d", i)
		s.file(name+".c", text.String())
		s.prepare("gcc", "-c", name+".c", "-o", name+".want")
		s.do("env", "DISTCC_FALLBACK=0", fmt.Sprintf("DISTCC_HOSTS=127.0.0.1:%d", frontPort), "DISTCC_DIR="+s.dir, "distcc", "gcc", "-c", name+".c", "-o", name+".o")
		s.same(s.path(name+".o"), s.path(name+".want"))
	}
}

// checkX writes properties of the root window, large ones too, and reads them back.
func checkX(s *stage) {
	s.Helper()
	want := ""
	for i := range size(10, 50) {
		value := strings.Repeat(fmt.Sprintf("%d.", i), 1+i*2000)
		s.do("xprop", "-display", "127.0.0.1:7", "-root", "-f", "P", "8s", "-set", "P", value)
		want = fmt.Sprintf("P(STRING) = \"%s\"\n", value)
		if got := s.do("xprop", "-display", "127.0.0.1:7", "-len", "1000000", "-root", "P"); got != want {
			s.Errorf("property: %d bytes, want %d", len(got), len(want))
		}
	}
	if got := s.do("xdpyinfo", "-display", "127.0.0.1:7", "-queryExtensions"); !strings.Contains(got, "640x480 pixels") {
		s.Errorf("xdpyinfo says %s", got)
	}
}

func serveSyslog(s *stage) {
	s.server(backPort, "rsyslogd", "-n", "-i", s.path("far.pid"), "-f", s.file("far.conf", fmt.Sprintf(`global(workDirectory="%[1]s")
module(load="imtcp")
template(name="t" type="string" string="%%msg%%\n")
input(type="imtcp" port="%[2]d" address="127.0.0.1")
action(type="omfile" file="%[1]s/lines" template="t" asyncWriting="off" flushOnTXEnd="on")
`, s.dir, backPort)))
	s.server(frontPort, "rsyslogd", "-n", "-i", s.path("near.pid"), "-f", s.file("near.conf", fmt.Sprintf(`global(workDirectory="%s")
module(load="imptcp")
input(type="imptcp" port="%d" address="127.0.0.1")
action(type="omfwd" target="127.0.0.1" port="%d" protocol="tcp" queue.type="LinkedList" queue.size="1000000")
`, s.dir, frontPort, backPort)))
}

// checkSyslog sends lines by way of two servers and reads the file of the last.
func checkSyslog(s *stage) {
	s.Helper()
	var lines, want strings.Builder
	n := size(5000, 50000)
	for i := range n {
		fmt.Fprintf(&lines, "line %d %s\n", i, strings.Repeat("x", i%500))
		fmt.Fprintf(&want, " line %d %s\n", i, strings.Repeat("x", i%500))
	}
	s.prepare("sh", "-c", ": > lines") // rsyslogd has it open to append, or makes it
	s.do("logger", "-n", "127.0.0.1", "-P", strconv.Itoa(frontPort), "-T", "-t", "t", "-f", s.file("in", lines.String()))
	s.prepare("sh", "-c", `for i in $(seq 600); do [ "$(wc -l < lines)" -lt "$1" ] || exit 0; sleep 0.1; done`, "sh", strconv.Itoa(n))
	s.same(s.path("lines"), s.file("wanted", want.String()))
}

func serveKnot(s *stage) {
	var zone strings.Builder
	zone.WriteString("$ORIGIN test.\n$TTL 60\n@ SOA ns root 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n")
	for i := range size(5000, 50000) {
		fmt.Fprintf(&zone, "h%d TXT \"%s\"\n", i, strings.Repeat("v", i%200))
	}
	s.file("test.zone", zone.String())
	config := func(dir string, port int, rest string) string {
		s.prepare("mkdir", "-p", s.path(dir))
		return s.file(dir+".conf", fmt.Sprintf(`server:
    listen: 127.0.0.1@%d
    rundir: %[2]s
    tcp-reuseport: on
database:
    storage: %[2]s
log:
  - target: stderr
    any: error
`, port, s.path(dir))+rest)
	}
	s.server(backPort, "knotd", "-c", config("first", backPort, fmt.Sprintf("acl:\n  - id: a\n    address: 127.0.0.1\n    action: transfer\nzone:\n  - domain: test\n    file: %s\n    acl: a\n", s.path("test.zone"))))
	s.server(frontPort, "knotd", "-c", config("second", frontPort, fmt.Sprintf("remote:\n  - id: r\n    address: 127.0.0.1@%d\nacl:\n  - id: a\n    address: 127.0.0.1\n    action: transfer\nzone:\n  - domain: test\n    master: r\n    acl: a\n", backPort)))
}

// checkKnot has the zone sent by both servers.
func checkKnot(s *stage) {
	s.Helper()
	arg := []string{"+tcp", "+noall", "+answer", "@127.0.0.1", "-p"}
	s.prepare("sh", "-c", `until dig +tcp +short @127.0.0.1 -p "$1" test SOA | grep -q root; do sleep 0.1; done`, "sh", strconv.Itoa(frontPort))
	for range 3 {
		far := s.do(append(append([]string{"dig"}, arg...), strconv.Itoa(backPort), "test", "AXFR")...)
		near := s.do(append(append([]string{"dig"}, arg...), strconv.Itoa(frontPort), "test", "AXFR")...)
		if n := strings.Count(far, "TXT"); n != size(5000, 50000) || strings.Count(near, "TXT") != n {
			s.Errorf("AXFR: %d and %d records", n, strings.Count(near, "TXT"))
		}
	}
}
