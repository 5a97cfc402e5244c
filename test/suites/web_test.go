package suites

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Ports of the servers; each scenario has a network of its own.
const (
	frontPort = 8080
	backPort  = 8081
	otherPort = 8082
)

// webScenarios are those of web servers and proxies.
func webScenarios() []scenario {
	var all []scenario
	for _, mpm := range []string{"prefork", "worker", "event"} {
		all = append(all, scenario{
			name:  "apache-" + mpm,
			needs: map[string]string{"apache2": "apache2", "ab": "apache2-utils", "curl": "curl"},
			serve: func(s *stage) { serveApache(s, mpm) },
			check: func(s *stage) { checkWeb(s); ab(s, size(2000, 20000)) },
			load:  func(s *stage) { ab(s, size(4000, 20000)) },
		})
	}
	for _, splice := range []bool{false, true} {
		name := map[bool]string{false: "haproxy", true: "haproxy-splice"}[splice]
		all = append(all, scenario{
			name:  name,
			needs: map[string]string{"haproxy": "haproxy", "nginx": "nginx-light", "ab": "apache2-utils", "curl": "curl"},
			serve: func(s *stage) { serveHAProxy(s, splice) },
			check: func(s *stage) { checkWeb(s); fetch(s, otherPort, "big", 2); ab(s, size(1000, 10000)) },
			load:  func(s *stage) { fetchBig(s, frontPort) },
		})
	}
	return append(all, scenario{
		name:  "php-fpm",
		needs: map[string]string{"/usr/sbin/php-fpm*": "php-fpm", "nginx": "nginx-light", "ab": "apache2-utils", "curl": "curl"},
		serve: servePHP,
		check: checkPHP,
		load:  func(s *stage) { abPath(s, "/hello.php", size(1000, 5000)) },
	})
}

// bigFile is what a web server serves, in bytes.
func bigFile() int { return size(32, 128) << 20 }

// site writes what the web servers serve.
func site(s *stage) {
	s.random("www/big", bigFile())
	s.file("www/index.html", strings.Repeat("small page\n", 100))
}

func serveApache(s *stage, mpm string) {
	site(s)
	s.server(frontPort, "apache2", "-D", "FOREGROUND", "-f", s.file("apache.conf", s.expand(`ServerRoot /usr/lib/apache2
LoadModule mpm_`+mpm+`_module modules/mod_mpm_`+mpm+`.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule dir_module modules/mod_dir.so
ServerName localhost
PidFile $RUN/pid
ErrorLog $RUN/error.log
DefaultRuntimeDir $RUN
Mutex file:$RUN
User www-data
Group www-data
Listen 127.0.0.1:`+strconv.Itoa(frontPort)+`
DocumentRoot $RUN/www
MaxKeepAliveRequests 0
EnableSendfile On
<Directory />
Require all granted
</Directory>
`)))
}

// fetch gets a file, several times at once, and compares.
func fetch(s *stage, port int, name string, times int) {
	s.Helper()
	var urls []string
	for i := range times {
		urls = append(urls, "-o", s.path(fmt.Sprintf("got%d", i)), fmt.Sprintf("http://127.0.0.1:%d/%s", port, name))
	}
	s.do(append([]string{"curl", "-fsS", "--parallel"}, urls...)...)
	for i := range times {
		s.same(s.path(fmt.Sprintf("got%d", i)), s.path("www/"+name))
	}
}

// checkWeb gets a large file three times at once, and a small one.
func checkWeb(s *stage) {
	s.Helper()
	fetch(s, frontPort, "big", 3)
	fetch(s, frontPort, "index.html", 1)
}

// fetchBig is the load of a proxy.
func fetchBig(s *stage, port int) {
	s.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/big", port)
	s.do("curl", "-fsS", "-o", "/dev/null", url, "-o", "/dev/null", url, "-o", "/dev/null", url, "-o", "/dev/null", url)
}

// ab makes n requests of the small page, on 8 connections that are kept.
func ab(s *stage, n int) { s.Helper(); abPath(s, "/index.html", n) }

func abPath(s *stage, path string, n int) {
	s.Helper()
	out := s.do("ab", "-q", "-k", "-c", "8", "-n", strconv.Itoa(n), fmt.Sprintf("http://127.0.0.1:%d%s", frontPort, path))
	for _, want := range []string{"Complete requests:      " + strconv.Itoa(n) + "\n", "Failed requests:        0\n"} {
		if !strings.Contains(out, want) {
			s.Errorf("ab does not say %q\n%s", want, out)
		}
	}
	if strings.Contains(out, "Non-2xx") {
		s.Errorf("ab got errors:\n%s", out)
	}
}

// serveNginx starts nginx in front of what rest says.
func serveNginx(s *stage, port int, rest string) {
	s.server(port, "nginx", "-e", s.path("error.log"), "-c", s.file("nginx.conf", s.expand(`daemon off;
worker_processes 2;
user www-data;
pid $RUN/nginx.pid;
error_log $RUN/error.log;
events {}
http {
	access_log off;
	client_body_temp_path $RUN/body;
	fastcgi_temp_path $RUN/fastcgi;
	proxy_temp_path $RUN/proxy;
	client_max_body_size 0;
	types { text/html html; }
	server {
		listen 127.0.0.1:`+strconv.Itoa(port)+`;
		root $RUN/www;
		keepalive_requests 1000000;
		`+rest+`
	}
}
`)))
}

func serveHAProxy(s *stage, splice bool) {
	site(s)
	serveNginx(s, backPort, "sendfile on;")
	// One with a worker in a chroot, as Debian's service has it.
	how, option, lines := "-Wdb", "nosplice\n\tuser www-data\n\tgroup www-data\n\tchroot "+s.path("www"), ""
	if splice {
		how, option, lines = "-db", "", "option splice-request\n\toption splice-response"
	}
	s.server(otherPort, "haproxy", how, "-f", s.file("haproxy.cfg", fmt.Sprintf(`global
	maxconn 200
	%s
defaults
	timeout connect 10s
	timeout client 60s
	timeout server 60s
	%s
frontend web
	mode http
	bind 127.0.0.1:%d
	default_backend web
backend web
	mode http
	http-reuse always
	server one 127.0.0.1:%d
listen raw
	mode tcp
	bind 127.0.0.1:%d
	server one 127.0.0.1:%d
`, option, lines, frontPort, backPort, otherPort, backPort)))
}

func servePHP(s *stage) {
	site(s)
	s.file("www/echo.php", "<?php header('Content-Type: application/octet-stream'); echo file_get_contents('php://input');\n")
	s.file("www/hello.php", "<?php echo str_repeat('hello ', 1000);\n")
	programs, _ := filepath.Glob("/usr/sbin/php-fpm*") // scenario.needs
	s.server(backPort, programs[0], "-F", "-n", "-y", s.file("fpm.conf", s.expand(`[global]
error_log = $RUN/fpm.log
pid = $RUN/fpm.pid
[www]
user = www-data
listen = 127.0.0.1:`+strconv.Itoa(backPort)+`
pm = static
pm.max_children = 4
php_admin_value[post_max_size] = 64M
php_admin_value[memory_limit] = 512M
`)))
	serveNginx(s, frontPort, fmt.Sprintf(`location ~ \.php$ {
			fastcgi_pass 127.0.0.1:%d;
			fastcgi_keep_conn on;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param CONTENT_TYPE $content_type;
			fastcgi_param CONTENT_LENGTH $content_length;
		}`, backPort))
}

func checkPHP(s *stage) {
	body := s.random("posted", 4<<20)
	for range 3 {
		s.do("curl", "-fsS", "-H", "Expect:", "-H", "Content-Type: application/octet-stream", "--data-binary", "@"+body, "-o", s.path("echoed"),
			fmt.Sprintf("http://127.0.0.1:%d/echo.php", frontPort))
		s.same(s.path("echoed"), body)
	}
	abPath(s, "/hello.php", size(300, 2000))
}
