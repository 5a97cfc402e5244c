package suites

import (
	"fmt"
	"strconv"
	"strings"
)

// otherScenarios are proxies, mail, directories, chat, printing, disks and web servers that no test
// ran before 21 November 2026. They are all for -full or by name.
func otherScenarios() []scenario {
	port := strconv.Itoa(frontPort)
	return append(append(proxyScenarios(), mailScenarios()...), []scenario{
		{
			name: "webrick", long: true, // Ruby, a thread for each connection
			needs: map[string]string{"ruby": "ruby", "/usr/share/rubygems-integration/all/specifications/webrick-*": "ruby-webrick", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.server(frontPort, "ruby", "-run", "-ehttpd", s.path("www"), "-b127.0.0.1", "-p"+port)
			},
			check: func(s *stage) { checkWeb(s); ab(s, size(500, 5000)) },
		},
		{
			name: "puma", long: true, // Ruby, a reactor and threads
			needs: map[string]string{"puma": "puma", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.server(frontPort, "puma", "-e", "production", "-b", "tcp://127.0.0.1:"+port, s.file("config.ru",
					"run ->(env) { env['REQUEST_METHOD'] == 'POST' ? [200, {}, [env['rack.input'].read]] : [200, {}, [File.binread('www' + env['PATH_INFO'])]] }\n"))
			},
			check: func(s *stage) { checkWeb(s); ab(s, size(1000, 10000)); posted(s, "/echo") },
			load:  func(s *stage) { ab(s, size(2000, 10000)) },
		},
		{
			name: "gnutls", long: true,
			needs: map[string]string{"gnutls-serv": "gnutls-bin", "gnutls-cli": "gnutls-bin", "openssl": "openssl", "curl": "curl"},
			serve: func(s *stage) {
				certificate(s)
				s.server(frontPort, "gnutls-serv", "-q", "--echo", "-p", port, "--x509keyfile", s.path("key.pem"), "--x509certfile", s.path("cert.pem"))
			},
			check: checkGnuTLS,
		},
		{
			name: "aria2", long: true, // sixteen connections for a file
			needs: map[string]string{"aria2c": "aria2", "nginx": "nginx-light"},
			serve: func(s *stage) { site(s); serveNginx(s, frontPort, "sendfile on;") },
			check: func(s *stage) {
				s.prepare("rm", "-f", s.path("got"))
				s.do("aria2c", "-q", "--no-conf", "-x16", "-s16", "-k1M", "--file-allocation=none", "-d", s.dir, "-o", "got", "http://127.0.0.1:"+port+"/big")
				s.same(s.path("got"), s.path("www/big"))
			},
		},
		{
			name: "slapd", long: true, // threads, epoll, a wake-up by a pair of sockets
			needs: map[string]string{"slapd": "slapd", "ldapadd": "ldap-utils", "/etc/ldap/schema/core.schema": "slapd"},
			serve: serveLDAP, check: checkLDAP,
		},
		{
			name: "ngircd", long: true,
			needs: map[string]string{"ngircd": "ngircd"},
			serve: func(s *stage) {
				s.server(frontPort, "ngircd", "-n", "-f", s.file("ngircd.conf", "[Global]\nName = irc.test\nServerUID = nobody\nServerGID = nogroup\nListen = 127.0.0.1\nPorts = "+port+
					"\n[Limits]\nMaxConnectionsIP = 0\n[Options]\nDNS = no\nIdent = no\nPAM = no\n"))
			},
			check: func(s *stage) { s.do(python, s.script("irc.py"), port, strconv.Itoa(size(300, 2000))) },
		},
		{
			name: "cups", long: true,
			needs: map[string]string{"cupsd": "cups-daemon", "lp": "cups-client", "lpadmin": "cups-client"},
			serve: serveCUPS, check: checkCUPS,
		},
		{
			name: "xinetd", long: true, // its own echo, and a program for each connection
			needs: map[string]string{"xinetd": "xinetd"},
			serve: serveXinetd,
			check: func(s *stage) {
				for _, port := range []int{frontPort, backPort} {
					s.do(python, s.script("echo.py"), "client", strconv.Itoa(port), strconv.Itoa(size(4<<20, 64<<20)))
				}
			},
		},
		{
			name: "nbd", long: true, // a block device, many requests under way
			needs: map[string]string{"nbdkit": "nbdkit", "nbdcopy": "libnbd-bin"},
			serve: func(s *stage) {
				s.random("disk", size(32, 256)<<20)
				s.prepare("cp", s.path("disk"), s.path("served"))
				s.server(frontPort, "nbdkit", "-f", "-i", "127.0.0.1", "-p", port, "file", s.path("served"))
			},
			check: func(s *stage) {
				url := "nbd://127.0.0.1:" + port
				s.prepare("cp", s.path("disk"), s.path("served"))
				s.do("nbdcopy", url, s.path("got"))
				s.same(s.path("got"), s.path("disk"))
				s.do("nbdcopy", s.random("other", size(32, 256)<<20), url)
				s.same(s.path("served"), s.path("other"))
			},
		},
		{
			name: "grpc", long: true, // gRPC's C core: its own event engine and threads
			needs: map[string]string{"python3:grpc": "python3-grpcio"},
			serve: func(s *stage) { s.server(frontPort, python, s.script("rpc.py"), "server", port) },
			check: func(s *stage) { s.do(python, s.script("rpc.py"), "client", port, strconv.Itoa(size(500, 5000))) },
		},
		{
			name: "pgbouncer", long: true, // a pool of connections, libevent
			needs: map[string]string{"pgbouncer": "pgbouncer", "/usr/lib/postgresql/*/bin/postgres": "postgresql", "psql": "postgresql-client"},
			serve: servePgBouncer, check: checkPgBouncer,
			load: func(s *stage) { pgbench(s, size(500, 5000)) },
		},
		{
			name: "rabbitmq", long: true, // Erlang, and clients in C
			needs: map[string]string{"/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server", "amqp-publish": "amqp-tools"},
			serve: serveRabbit, check: checkRabbit,
		},
	}...)
}

// proxyScenarios are proxies before nginx.
func proxyScenarios() []scenario {
	proxy := func(name, pkg string, serve func(s *stage)) scenario {
		return scenario{
			name: name, long: true,
			needs: map[string]string{name: pkg, "nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) { site(s); serveNginx(s, backPort, "sendfile on;"); serve(s) },
			check: checkSquid,
			load:  func(s *stage) { proxied(s, false) },
		}
	}
	return []scenario{
		proxy("tinyproxy", "tinyproxy-bin", func(s *stage) {
			s.server(frontPort, "tinyproxy", "-d", "-c", s.file("tinyproxy.conf", fmt.Sprintf("Port %d\nListen 127.0.0.1\nTimeout 600\nMaxClients 100\nUser nobody\nGroup nogroup\nLogLevel Error\n", frontPort)))
		}),
		proxy("privoxy", "privoxy", func(s *stage) {
			s.server(frontPort, "privoxy", "--no-daemon", s.file("privoxy.conf", fmt.Sprintf("listen-address 127.0.0.1:%d\nkeep-alive-timeout 300\nconnection-sharing 1\ntolerate-pipelining 1\n", frontPort)))
		}),
		{
			name: "nghttpx", long: true, // libev, threads, HTTP/2 at one end
			needs: map[string]string{"nghttpx": "nghttp2-proxy", "nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils", "h2load": "nghttp2-client"},
			serve: func(s *stage) {
				site(s)
				serveNginx(s, backPort, "sendfile on;")
				s.server(frontPort, "nghttpx", "--conf=/dev/null", "-n2", fmt.Sprintf("-f127.0.0.1,%d;no-tls", frontPort), fmt.Sprintf("-b127.0.0.1,%d", backPort), "--errorlog-file="+s.path("error.log"))
			},
			check: func(s *stage) {
				checkWeb(s)
				ab(s, size(1000, 10000))
				s.do("curl", "-fsS", "--http2-prior-knowledge", "-o", s.path("got"), fmt.Sprintf("http://127.0.0.1:%d/big", frontPort))
				s.same(s.path("got"), s.path("www/big"))
			},
			load: func(s *stage) { ab(s, size(2000, 10000)) },
		},
		{
			name: "sslh", long: true, // forks a copier for each connection
			needs: map[string]string{"sslh": "sslh", "nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				serveNginx(s, backPort, "sendfile on;")
				s.server(frontPort, "sslh", "-f", "-p", fmt.Sprintf("127.0.0.1:%d", frontPort), "--http", fmt.Sprintf("127.0.0.1:%d", backPort), "--user", "nobody")
			},
			check: func(s *stage) { checkWeb(s); ab(s, size(1000, 10000)) },
		},
	}
}

// certificate writes key.pem and cert.pem of localhost.
func certificate(s *stage) {
	s.Helper()
	s.prepare("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", s.path("key.pem"), "-out", s.path("cert.pem"))
}

// checkGnuTLS sends a text through gnutls-cli to the echo of gnutls-serv.
func checkGnuTLS(s *stage) {
	s.Helper()
	var text strings.Builder
	for i := range size(2000, 20000) {
		fmt.Fprintf(&text, "line %d %s\n", i, strings.Repeat("x", i%200))
	}
	s.file("text", text.String())
	s.do("sh", "-c", `{ cat text; while ! cmp -s text got; do sleep 0.1; done; } | gnutls-cli --insecure --logfile=log -p "$1" 127.0.0.1 > got`, "gnutls", strconv.Itoa(frontPort))
	s.same(s.path("got"), s.path("text"))
}

func serveLDAP(s *stage) {
	s.prepare("sh", "-c", "mkdir -p db && ls /usr/lib/ldap/back_mdb.so >/dev/null")
	s.server(frontPort, "slapd", "-d", "0", "-h", fmt.Sprintf("ldap://127.0.0.1:%d", frontPort), "-f", s.file("slapd.conf", s.expand(`include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $RUN/pid
sizelimit unlimited
database mdb
maxsize 268435456
suffix "dc=test"
rootdn "cn=admin,dc=test"
rootpw secret
directory $RUN/db
`)))
}

// checkLDAP adds entries, some of them large, reads them back, and deletes them.
func checkLDAP(s *stage) {
	s.Helper()
	var add, want, del strings.Builder
	add.WriteString("dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\no: test\ndc: test\n\n")
	for i := range size(300, 3000) {
		value := fmt.Sprintf("%d.%s", i, strings.Repeat("v", i*977%50000))
		fmt.Fprintf(&add, "dn: cn=e%d,dc=test\nobjectClass: organizationalRole\ncn: e%d\ndescription: %s\n\n", i, i, value)
		fmt.Fprintf(&want, "description: %s\n", value)
		fmt.Fprintf(&del, "cn=e%d,dc=test\n", i)
	}
	url := fmt.Sprintf("ldap://127.0.0.1:%d", frontPort)
	as := []string{"-x", "-H", url, "-D", "cn=admin,dc=test", "-w", "secret"}
	s.do(append(append([]string{"ldapadd"}, as...), "-f", s.file("add.ldif", add.String()))...)
	out := s.do(append(append([]string{"ldapsearch"}, as...), "-LLL", "-o", "ldif-wrap=no", "-b", "dc=test", "(cn=*)", "description")...)
	var got strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "description: ") {
			got.WriteString(line)
		}
	}
	if got.String() != want.String() {
		s.Errorf("ldapsearch says %d bytes that are not the %d that were added", got.Len(), want.Len())
	}
	s.do(append(append([]string{"ldapdelete"}, as...), "-f", s.file("del", del.String()+"dc=test\n"))...)
}

func serveCUPS(s *stage) {
	s.prepare("sh", "-c", "mkdir -p cups/spool/tmp cups/cache cups/run cups/etc cups/log && chown -R lp cups && chmod -R a+rX cups")
	s.file("cups/etc/cups-files.conf", s.expand(`FileDevice Yes
User lp
Group lp
SystemGroup root
ServerRoot $RUN/cups/etc
StateDir $RUN/cups/run
CacheDir $RUN/cups/cache
RequestRoot $RUN/cups/spool
TempDir $RUN/cups/spool/tmp
ErrorLog $RUN/error.log
AccessLog $RUN/cups/log/access
PageLog $RUN/cups/log/page
`))
	s.file("cups/etc/cupsd.conf", fmt.Sprintf(`Listen 127.0.0.1:%d
Browsing Off
PreserveJobFiles Yes
DefaultAuthType None
LogLevel warn
<Location />
  Allow all
</Location>
<Location /admin>
  Allow all
</Location>
<Policy default>
  <Limit All>
    Order deny,allow
    Allow all
  </Limit>
</Policy>
`, frontPort))
	s.server(frontPort, "cupsd", "-f", "-c", s.path("cups/etc/cupsd.conf"), "-s", s.path("cups/etc/cups-files.conf"))
	s.prepare("lpadmin", "-h", fmt.Sprintf("127.0.0.1:%d", frontPort), "-p", "queue", "-E", "-v", "file:/dev/null")
}

// checkCUPS prints files, and compares what is in the spool.
func checkCUPS(s *stage) {
	s.Helper()
	file := s.random("job", size(8, 64)<<20)
	for range 3 {
		s.do("lp", "-h", fmt.Sprintf("127.0.0.1:%d", frontPort), "-d", "queue", "-o", "raw", file)
		s.prepare("sh", "-c", `set -e; for f in cups/spool/d*; do cmp "$f" job; rm "$f"; done`)
	}
}

func serveXinetd(s *stage) {
	s.server(frontPort, "xinetd", "-dontfork", "-f", s.file("xinetd.conf", fmt.Sprintf(`defaults
{
	log_type = FILE /dev/null
	instances = 50
	cps = 1000 1
}
service echo
{
	type = INTERNAL UNLISTED
	id = echo-stream
	socket_type = stream
	protocol = tcp
	user = root
	wait = no
	port = %d
	bind = 127.0.0.1
}
service cat
{
	type = UNLISTED
	socket_type = stream
	protocol = tcp
	user = nobody
	wait = no
	port = %d
	bind = 127.0.0.1
	server = /bin/cat
}
`, frontPort, backPort)))
}

// postgresPrograms is where PostgreSQL's programs are.
const postgresPrograms = "/usr/lib/postgresql/15/bin/"

func servePgBouncer(s *stage) {
	s.prepare("sh", "-c", `mkdir pg && chown postgres pg && runuser -u postgres -- "$1"initdb -D pg/data -A trust -N >/dev/null`, "sh", postgresPrograms)
	s.server(backPort, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", postgresPrograms+"postgres", "-D", s.path("pg/data"), "-h", "127.0.0.1",
		"-p", strconv.Itoa(backPort), "-k", s.path("pg"), "-F")
	s.server(frontPort, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "pgbouncer", s.file("pgbouncer.ini", fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
logfile = /dev/null
`, backPort, frontPort)))
	s.prepare("sh", "-c", `until psql -q -h 127.0.0.1 -p "$1" -U postgres -c 'select 1' >/dev/null 2>&1; do sleep 0.1; done; "$2"pgbench -q -i -h 127.0.0.1 -p "$1" -U postgres postgres 2>/dev/null`,
		"sh", strconv.Itoa(backPort), postgresPrograms)
}

// pgbench makes n transactions on each of four connections.
func pgbench(s *stage, n int) {
	s.Helper()
	out := s.do(postgresPrograms+"pgbench", "-n", "-S", "-c", "4", "-t", strconv.Itoa(n), "-h", "127.0.0.1", "-p", strconv.Itoa(frontPort), "-U", "postgres", "postgres")
	if want := fmt.Sprintf("number of transactions actually processed: %d/%d\n", 4*n, 4*n); !strings.Contains(out, want) {
		s.Errorf("pgbench does not say %q:\n%s", want, out)
	}
}

// checkPgBouncer writes a large value by COPY and reads it back.
func checkPgBouncer(s *stage) {
	s.Helper()
	var rows strings.Builder
	for i := range size(2000, 20000) {
		fmt.Fprintf(&rows, "%d\t%s\n", i, strings.Repeat("v", i*977%5000))
	}
	s.file("rows", rows.String())
	s.do("psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", strconv.Itoa(frontPort), "-U", "postgres", "-c", "drop table if exists t; create table t (i int primary key, v text)",
		"-c", `\copy t from rows`, "-c", `\copy (select * from t order by i) to got`)
	s.same(s.path("got"), s.path("rows"))
	pgbench(s, size(500, 5000))
}

func serveRabbit(s *stage) {
	s.prepare("sh", "-c", `mkdir rabbit && chown rabbitmq rabbit && printf 'listeners.tcp.1 = 127.0.0.1:%s\nlog.console = false\n' "$1" > rabbitmq.conf && printf '[].\n' > enabled`, "sh", strconv.Itoa(frontPort))
	s.server(frontPort, "setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "env", "HOME="+s.path("rabbit"), "RABBITMQ_CONFIG_FILE="+s.path("rabbitmq.conf"),
		"RABBITMQ_MNESIA_BASE="+s.path("rabbit"), "RABBITMQ_LOG_BASE="+s.path("rabbit"), "RABBITMQ_ENABLED_PLUGINS_FILE="+s.path("enabled"),
		"RABBITMQ_NODENAME=n@localhost", "RABBITMQ_PID_FILE="+s.path("rabbit/pid"), "/usr/lib/rabbitmq/bin/rabbitmq-server")
}

// checkRabbit publishes messages, and takes them in order.
func checkRabbit(s *stage) {
	s.Helper()
	server := []string{"--server=127.0.0.1", "--port=" + strconv.Itoa(frontPort)}
	big := s.random("message", 4<<20)
	queue := strings.TrimSpace(s.do(append([]string{"amqp-declare-queue", "-q", "q"}, server...)...))
	for range 3 {
		s.do(append([]string{"sh", "-c", `f=$1; shift; exec amqp-publish "$@" < "$f"`, "sh", big, "-r", queue}, server...)...)
		s.do(append([]string{"sh", "-c", `exec amqp-get "$@" > got`, "sh", "-q", queue}, server...)...)
		s.same(s.path("got"), big)
	}
	var lines strings.Builder
	n := size(500, 5000)
	for i := range n {
		fmt.Fprintf(&lines, "message %d\n", i)
	}
	s.file("lines", lines.String())
	s.do(append([]string{"sh", "-c", `exec amqp-publish "$@" < lines`, "sh", "-l", "-r", queue}, server...)...)
	if got := s.do(append(append([]string{"amqp-consume", "-q", queue, "-A", "-c", strconv.Itoa(n)}, server...), "cat")...); strings.Count(got, "message ") != n {
		s.Errorf("%d of %d messages came", strings.Count(got, "message "), n)
	}
}
