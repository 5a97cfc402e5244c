package suites

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// python is Debian's, which has Debian's modules.
const python = "/usr/bin/python3"

// serverScenarios are those of web servers and proxies of other makes: event loops, processes and
// threads of all kinds. They are all for -full or by name.
func serverScenarios() []scenario {
	return []scenario{
		{
			name: "lighttpd", long: true, // an event loop, programs for each request
			needs: map[string]string{"lighttpd": "lighttpd", "curl": "curl", "ab": "apache2-utils", "h2load": "nghttp2-client"},
			serve: serveLighttpd,
			check: func(s *stage) { checkWeb(s); ab(s, size(2000, 20000)); posted(s, "/echo.sh"); h2load(s) },
			load:  func(s *stage) { ab(s, size(4000, 20000)) },
		},
		{
			name: "squid", long: true, // a proxy, with CONNECT
			needs: map[string]string{"squid": "squid", "nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils"},
			serve: serveSquid,
			check: checkSquid,
			load:  func(s *stage) { proxied(s, false) },
		},
		{
			name: "varnish", long: true, // threads, a cache
			needs: map[string]string{"varnishd": "varnish", "nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils", "siege": "siege"},
			serve: serveVarnish,
			check: func(s *stage) { checkWeb(s); ab(s, size(2000, 20000)); siege(s) },
			load:  func(s *stage) { ab(s, size(4000, 20000)) },
		},
		{
			name: "gunicorn", long: true, // processes that accept from one listener, with threads
			needs: map[string]string{"gunicorn": "gunicorn", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.script("wsgi.py")
				s.server(frontPort, "/usr/bin/gunicorn", "-w", "2", "-k", "gthread", "--threads", "4", "-b", fmt.Sprintf("127.0.0.1:%d", frontPort), "wsgi")
			},
			check: func(s *stage) { checkWeb(s); ab(s, size(1000, 10000)); posted(s, "/echo") },
			load:  func(s *stage) { ab(s, size(1000, 5000)) },
		},
		{
			name: "uwsgi", long: true, // a router before workers
			needs: map[string]string{"uwsgi": "uwsgi-core", "/usr/lib/uwsgi/plugins/python3_plugin.so": "uwsgi-plugin-python3", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.server(frontPort, "uwsgi", "--plugin", "http,python3", "--http", fmt.Sprintf("127.0.0.1:%d", frontPort), "--http-keepalive",
					"--socket", fmt.Sprintf("127.0.0.1:%d", backPort), "--http-to", fmt.Sprintf("127.0.0.1:%d", backPort), "--wsgi-file", s.script("wsgi.py"), "--master",
					"--processes", "2", "--die-on-term", "--disable-logging")
			},
			check: func(s *stage) { checkWeb(s); ab(s, size(1000, 10000)); posted(s, "/echo") },
			load:  func(s *stage) { ab(s, size(1000, 5000)) },
		},
		loopScenario("aiohttp", map[string]string{"python3:aiohttp": "python3-aiohttp", "python3:uvloop": "python3-uvloop"}),
		loopScenario("tornado", map[string]string{"python3:tornado": "python3-tornado"}),
		loopScenario("twisted", map[string]string{"python3:twisted": "python3-twisted"}),
		clusterScenario("rr"), clusterScenario("none"),
		{
			name: "php", long: true, // php -S, with workers
			needs: map[string]string{"php": "php-cli", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.file("www/echo.php", "<?php header('Content-Type: application/octet-stream'); echo file_get_contents('php://input');\n")
				s.server(frontPort, "env", "PHP_CLI_SERVER_WORKERS=4", "php", "-n", "-d", "post_max_size=64M", "-d", "memory_limit=512M", "-q", "-S",
					fmt.Sprintf("127.0.0.1:%d", frontPort), "-t", s.path("www"))
			},
			check: func(s *stage) { checkWeb(s); posted(s, "/echo.php") },
		},
		{
			name: "java", long: true, // selectors and threads, at both ends
			needs: map[string]string{"javac": "default-jdk-headless", "curl": "curl", "ab": "apache2-utils"},
			serve: func(s *stage) {
				site(s)
				s.prepare("javac", "-d", s.dir, s.script("Web.java"))
				s.server(frontPort, "java", "-cp", s.dir, "Web", strconv.Itoa(frontPort))
			},
			check: func(s *stage) {
				checkWeb(s)
				ab(s, size(1000, 10000))
				posted(s, "/echo")
				s.do("java", "-cp", s.dir, "Web", "client", strconv.Itoa(frontPort))
			},
			load: func(s *stage) { ab(s, size(2000, 10000)) },
		},
		{
			name: "nginx-reload", long: true, // new workers for old ones, under load
			needs: map[string]string{"nginx": "nginx-light", "curl": "curl", "ab": "apache2-utils", "wget": "wget"},
			serve: func(s *stage) { site(s); serveNginx(s, frontPort, "sendfile on;") },
			check: checkReload,
		},
		{
			name: "openssl", long: true, // TLS by both ends of one make
			needs: map[string]string{"openssl": "openssl", "curl": "curl"},
			serve: func(s *stage) {
				site(s)
				s.prepare("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", s.path("key.pem"), "-out", s.path("cert.pem"))
				s.server(frontPort, "sh", "-c", `cd www && exec openssl s_server -quiet -HTTP -key ../key.pem -cert ../cert.pem -port "$1"`, "sh", strconv.Itoa(frontPort))
			},
			check: func(s *stage) {
				for range 3 {
					s.do("curl", "-fsSk", "--http0.9", "-o", s.path("got"), fmt.Sprintf("https://127.0.0.1:%d/big", frontPort))
					s.same(s.path("got"), s.path("www/big"))
				}
			},
		},
	}
}

// posted sends a file and compares what comes back, three times.
func posted(s *stage, path string) {
	s.Helper()
	body := s.random("posted", 4<<20)
	for range 3 {
		s.do("curl", "-fsS", "-H", "Content-Type: application/octet-stream", "--data-binary", "@"+body, "-o", s.path("echoed"),
			fmt.Sprintf("http://127.0.0.1:%d%s", frontPort, path))
		s.same(s.path("echoed"), body)
	}
}

// h2load makes requests on several connections at once, several under way on each.
func h2load(s *stage) {
	s.Helper()
	n := size(2000, 20000)
	out := s.do("h2load", "--h1", "-n", strconv.Itoa(n), "-c", "10", "-m", "5", fmt.Sprintf("http://127.0.0.1:%d/index.html", frontPort))
	if want := fmt.Sprintf("%d succeeded, 0 failed, 0 errored, 0 timeout", n); !strings.Contains(out, want) {
		s.Errorf("h2load does not say %q:\n%s", want, out)
	}
}

// siege makes requests in threads.
func siege(s *stage) {
	s.Helper()
	out := s.do("siege", "-b", "-j", "-c", "10", "-r", strconv.Itoa(size(50, 500)), fmt.Sprintf("http://127.0.0.1:%d/index.html", frontPort))
	if !regexp.MustCompile(`"failed_transactions":\s+0,`).MatchString(out) {
		s.Errorf("siege: %s", out)
	}
}

func serveLighttpd(s *stage) {
	site(s)
	s.file("www/echo.sh", "printf 'Content-Type: application/octet-stream\\r\\n\\r\\n'\nexec cat\n")
	s.server(frontPort, "lighttpd", "-D", "-f", s.file("lighttpd.conf", s.expand(`server.document-root = "$RUN/www"
server.bind = "127.0.0.1"
server.port = `+strconv.Itoa(frontPort)+`
server.username = "www-data"
server.groupname = "www-data"
server.errorlog = "$RUN/error.log"
server.upload-dirs = ("/tmp")
server.max-keep-alive-requests = 60000
server.modules = ("mod_cgi")
mimetype.assign = (".html" => "text/html")
cgi.assign = (".sh" => "/bin/sh")
`)))
}

func serveSquid(s *stage) {
	site(s)
	serveNginx(s, backPort, "sendfile on;")
	s.server(frontPort, "squid", "-N", "-f", s.file("squid.conf", s.expand(fmt.Sprintf(`http_port 127.0.0.1:%d
http_access allow all
cache deny all
pid_filename none
access_log none
cache_log $RUN/error.log
cache_store_log none
coredump_dir $RUN
visible_hostname squid
shutdown_lifetime 0 seconds
max_filedescriptors 1024
`, frontPort))))
}

// proxied gets the large file by way of the proxy, by its tunnel or not.
func proxied(s *stage, tunnel bool) {
	s.Helper()
	argv := []string{"curl", "-fsS", "-x", fmt.Sprintf("http://127.0.0.1:%d", frontPort), "-o", s.path("got"), fmt.Sprintf("http://127.0.0.1:%d/big", backPort)}
	if tunnel {
		argv = append(argv, "--proxytunnel")
	}
	s.do(argv...)
	s.same(s.path("got"), s.path("www/big"))
}

func checkSquid(s *stage) {
	s.Helper()
	proxied(s, false)
	proxied(s, true)
	n := strconv.Itoa(size(1000, 10000))
	out := s.do("ab", "-q", "-k", "-c", "8", "-n", n, "-X", fmt.Sprintf("127.0.0.1:%d", frontPort), fmt.Sprintf("http://127.0.0.1:%d/index.html", backPort))
	if !strings.Contains(out, "Complete requests:      "+n+"\n") || !strings.Contains(out, "Failed requests:        0\n") || strings.Contains(out, "Non-2xx") {
		s.Errorf("ab by way of squid:\n%s", out)
	}
}

func serveVarnish(s *stage) {
	site(s)
	serveNginx(s, backPort, "sendfile on;")
	s.server(frontPort, "varnishd", "-F", "-j", "none", "-a", fmt.Sprintf("127.0.0.1:%d", frontPort), "-b", fmt.Sprintf("127.0.0.1:%d", backPort), "-n", s.path("varnish"),
		"-s", "malloc,512m", "-p", "vcc_allow_inline_c=off")
}

// loopScenario is a web server by one of Python's event loops, and clients by another.
func loopScenario(name string, needs map[string]string) scenario {
	needs["curl"], needs["ab"], needs["python3:aiohttp"], needs["python3:uvloop"] = "curl", "apache2-utils", "python3-aiohttp", "python3-uvloop"
	return scenario{
		name: name, long: true,
		needs: needs,
		serve: func(s *stage) {
			site(s)
			s.server(frontPort, python, s.script("loops.py"), name, strconv.Itoa(frontPort))
		},
		check: func(s *stage) {
			checkWeb(s)
			ab(s, size(500, 5000))
			s.do(python, s.script("loops.py"), "client", strconv.Itoa(frontPort))
		},
		load: func(s *stage) { ab(s, size(1000, 5000)) },
	}
}

// clusterScenario is Node with two workers. With "rr" the first process accepts, and passes the
// connections on.
func clusterScenario(how string) scenario {
	sc := scenario{
		name: "node-cluster-" + how, long: true,
		needs: map[string]string{"node": "nodejs", "curl": "curl", "ab": "apache2-utils"},
		serve: func(s *stage) {
			site(s)
			s.server(frontPort, "node", s.script("cluster.js"), strconv.Itoa(frontPort), how)
		},
		check: func(s *stage) { checkWeb(s); ab(s, size(1000, 10000)); posted(s, "/echo") },
		load:  func(s *stage) { ab(s, size(2000, 10000)) },
	}
	if how == "rr" {
		sc.tcp = "a process accepts, and passes the descriptor on to another"
	}
	return sc
}

// checkReload has nginx start new workers repeatedly while programs get files. ab may find a
// connection that it keeps closed, as with any server; what it gets it compares.
func checkReload(s *stage) {
	s.Helper()
	nginx := s.running[0]
	url := fmt.Sprintf("http://127.0.0.1:%d/", frontPort)
	for i := range 4 {
		var clients []*program
		got := s.path(fmt.Sprintf("wget%d", i))
		for _, argv := range [][]string{
			{"wget", "-q", "-t", "1", "-O", got, url + "big"},
			{"ab", "-q", "-r", "-k", "-c", "8", "-n", strconv.Itoa(size(2000, 20000)), url + "index.html"},
		} {
			p, err := s.box.run("", nil, argv)
			if err != nil {
				s.Fatal(err)
			}
			clients = append(clients, p)
		}
		for range 5 {
			nginx.signal(syscall.SIGHUP)
		}
		for _, p := range clients {
			s.ended(p)
		}
		s.same(got, s.path("www/big"))
	}
	checkWeb(s)
}
