package suites

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// scenarios are all that are known.
func scenarios() []scenario {
	all := webScenarios()
	all = append(all, serverScenarios()...)
	all = append(all, toolScenarios()...)
	all = append(all, otherScenarios()...)
	all = append(all, runtimeScenarios()...)
	all = append(all, styleScenarios()...)
	all = append(all, scriptScenarios()...)
	all = append(all, dataScenarios()...)
	return append(all, fileScenarios()...)
}

// dataScenarios are those of databases and message queues.
func dataScenarios() []scenario {
	return []scenario{
		{
			name:  "mariadb",
			needs: map[string]string{"mariadbd": "mariadb-server", "mariadb": "mariadb-client", "sysbench": "sysbench"},
			long:  true,
			serve: serveMariaDB, check: checkMariaDB,
			load: func(s *stage) { sysbench(s, "oltp_point_select", 4, size(2000, 20000)) },
		},
		{
			name:  "memcached",
			needs: map[string]string{"memcached": "memcached", "python3": "python3"},
			serve: func(s *stage) {
				s.server(frontPort, "memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", strconv.Itoa(frontPort), "-t", "2", "-m", "256")
			},
			check: func(s *stage) {
				s.do("/usr/bin/python3", s.script("memcached.py"), strconv.Itoa(frontPort), strconv.Itoa(size(1000, 10000)))
			},
		},
		{
			name:  "redis",
			needs: map[string]string{"redis-server": "redis-server", "python3": "python3"},
			serve: func(s *stage) {
				s.server(frontPort, "redis-server", "--port", strconv.Itoa(frontPort), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
			},
			check: func(s *stage) { // the order between connections
				s.do("/usr/bin/python3", s.script("redis.py"), strconv.Itoa(frontPort), strconv.Itoa(size(200, 3000)))
			},
		},
		{
			name:  "zeromq",
			needs: map[string]string{"python3:zmq": "python3-zmq"},
			serve: func(s *stage) {
				s.server(frontPort, "/usr/bin/python3", s.script("zeromq.py"), "server", strconv.Itoa(frontPort))
			},
			check: func(s *stage) {
				s.do("/usr/bin/python3", s.script("zeromq.py"), "client", strconv.Itoa(frontPort), strconv.Itoa(size(2000, 20000)))
			},
		},
	}
}

// sqlPort is MariaDB's.
const sqlPort = 3306

func serveMariaDB(s *stage) {
	s.prepare("chown", "mysql", s.dir)
	s.prepare("mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+s.path("data"), "--auth-root-authentication-method=normal", "--skip-test-db")
	s.server(sqlPort, "mariadbd", "--no-defaults", "--user=mysql", "--datadir="+s.path("data"), "--bind-address=127.0.0.1", "--port="+strconv.Itoa(sqlPort),
		"--socket="+s.path("sql"), "--pid-file="+s.path("pid"), "--max-allowed-packet=64M")
}

// sql runs statements of a file, and returns what they say.
func sql(s *stage, file string) string {
	s.Helper()
	return s.do("sh", "-c", `exec mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -u root --max-allowed-packet=64M -N < "$1"`, "sql", file)
}

// sysbench runs one of its benchmarks, always the same events.
func sysbench(s *stage, name string, threads, events int) {
	s.Helper()
	out := s.do("sysbench", name, "--db-driver=mysql", "--mysql-host=127.0.0.1", "--mysql-port="+strconv.Itoa(sqlPort), "--mysql-user=root", "--mysql-db=bench",
		"--tables=2", "--table-size=2000", "--rand-seed=1", "--time=0", "--threads="+strconv.Itoa(threads), "--events="+strconv.Itoa(events), "run")
	if !strings.Contains(out, "ignored errors:                      0 ") {
		s.Errorf("sysbench %s had errors:\n%s", name, out)
	}
}

func checkMariaDB(s *stage) {
	const row = 1 << 20
	var text strings.Builder
	text.WriteString("CREATE DATABASE bench; USE bench; CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT);\n")
	var want strings.Builder
	for i := range 4 {
		v := strings.Repeat(fmt.Sprintf("%07x,", i*0x1f3), row/8)
		fmt.Fprintf(&text, "INSERT INTO t VALUES (%d, '%s');\n", i, v)
		fmt.Fprintf(&want, "%d\t%s\n", i, v)
	}
	text.WriteString("SELECT * FROM t ORDER BY id;\n")
	if got := sql(s, s.file("insert.sql", text.String())); got != want.String() {
		s.Errorf("SELECT says %d bytes that are not the %d that were inserted", len(got), want.Len())
	}
	s.do("sysbench", "oltp_read_write", "--db-driver=mysql", "--mysql-host=127.0.0.1", "--mysql-port="+strconv.Itoa(sqlPort), "--mysql-user=root", "--mysql-db=bench",
		"--tables=2", "--table-size=2000", "--rand-seed=1", "prepare")
	sysbench(s, "oltp_read_write", 1, size(200, 2000)) // of several, one may be the victim of a deadlock
	rows := sql(s, s.file("rows.sql", "USE bench; SELECT COUNT(*) FROM sbtest1; CHECK TABLE sbtest1, sbtest2;\n"))
	if !strings.HasPrefix(rows, "2000\n") || strings.Count(rows, "\tOK\n") != 2 {
		s.Errorf("after sysbench: %s", rows)
	}
}

// fileScenarios are those of transfers and tunnels.
func fileScenarios() []scenario {
	return []scenario{
		{
			name:  "vsftpd",
			needs: map[string]string{"vsftpd": "vsftpd", "curl": "curl"},
			tcp:   "its processes share the control connection, and pass those of data on",
			serve: serveFTP, check: checkFTP,
		},
		{
			name:  "stunnel",
			needs: map[string]string{"stunnel4": "stunnel4", "openssl": "openssl", "python3": "python3"},
			serve: serveTunnel,
			check: func(s *stage) {
				s.do("/usr/bin/python3", s.script("echo.py"), "client", strconv.Itoa(frontPort), strconv.Itoa(size(8<<20, 64<<20)))
			},
		},
		{
			name:  "fio",
			needs: map[string]string{"fio": "fio"},
			serve: func(*stage) {}, check: fio,
		},
		{
			name:  "socat",
			needs: map[string]string{"socat": "socat"},
			tcp:   "it closes its listener when it has accepted, before the broker may have come to it",
			serve: func(*stage) {},
			check: func(s *stage) {
				transfer(s, []string{"socat", "-u", fmt.Sprintf("TCP4-LISTEN:%d,bind=127.0.0.1", frontPort), "CREATE:" + s.path("got")},
					func(file string) []string {
						return []string{"socat", "-u", "OPEN:" + file, fmt.Sprintf("TCP4:127.0.0.1:%d", frontPort)}
					})
			},
		},
		{
			name:  "ncat",
			needs: map[string]string{"ncat": "ncat"},
			tcp:   "it closes its listener when it has accepted, before the broker may have come to it",
			serve: func(*stage) {},
			check: func(s *stage) {
				transfer(s, []string{"sh", "-c", `exec ncat -l --recv-only 127.0.0.1 "$1" > "$2"`, "ncat", strconv.Itoa(frontPort), s.path("got")},
					func(file string) []string {
						return []string{"sh", "-c", `exec ncat --send-only 127.0.0.1 "$1" < "$2"`, "ncat", strconv.Itoa(frontPort), file}
					})
			},
		},
	}
}

// transfer starts a server that takes one file and a client that sends it.
func transfer(s *stage, server []string, client func(file string) []string) {
	s.Helper()
	file := s.random("file", size(32, 256)<<20)
	p := s.server(frontPort, server...)
	s.do(client(file)...)
	s.ended(p)
	s.running = nil
	s.same(s.path("got"), file)
}

// fio lets its net engine move a file's worth of bytes between two of its own. Its reader does not
// count all of what it reads in parts, and stops too early if it is told the same size.
func fio(s *stage) {
	s.Helper()
	bytes := size(64, 512) << 20
	args := func(kind string, bytes int, more ...string) []string {
		return append([]string{"fio", "--name=" + kind, "--ioengine=net", "--port=" + strconv.Itoa(frontPort), "--protocol=tcp", "--bs=64k",
			"--size=" + strconv.Itoa(bytes), "--output-format=json", "--output=" + s.path(kind)}, more...)
	}
	p := s.server(frontPort, args("reader", 2*bytes, "--listen", "--rw=read")...)
	s.do(args("writer", bytes, "--hostname=127.0.0.1", "--rw=write")...)
	s.ended(p)
	s.running = nil
	fioMoved(s, "writer", bytes, bytes)
	fioMoved(s, "reader", bytes/2, bytes)
}

// fioMoved fails the test unless a job of fio says that it moved so many bytes.
func fioMoved(s *stage, kind string, least, most int) {
	s.Helper()
	var said struct {
		Jobs []struct {
			Error int
			Read  struct {
				Bytes int `json:"io_bytes"`
			}
			Write struct {
				Bytes int `json:"io_bytes"`
			}
		}
	}
	text, err := os.ReadFile(s.path(kind))
	if err != nil {
		s.Fatal(err)
	}
	if at := strings.Index(string(text), "{"); at > 0 { // it says first that it waits
		text = text[at:]
	}
	if err := json.Unmarshal(text, &said); err != nil || len(said.Jobs) != 1 {
		s.Fatalf("fio's %s says %v: %s", kind, err, text)
	}
	if job := said.Jobs[0]; job.Error != 0 || job.Read.Bytes+job.Write.Bytes < least || job.Read.Bytes+job.Write.Bytes > most {
		s.Errorf("fio's %s: error %d, %d bytes, want %d to %d", kind, job.Error, job.Read.Bytes+job.Write.Bytes, least, most)
	}
}

// serveFTP starts vsftpd as it is by default, with its processes of several users and its sandbox.
func serveFTP(s *stage) {
	s.random("ftp/pub/down", size(16, 128)<<20)
	s.prepare("sh", "-c", `mkdir -p /run/vsftpd/empty "$1/ftp/in" && chown ftp "$1/ftp/in"`, "sh", s.dir)
	s.server(frontPort, "vsftpd", s.file("vsftpd.conf", s.expand(`listen=YES
listen_address=127.0.0.1
listen_port=`+strconv.Itoa(frontPort)+`
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=$RUN/ftp
anon_upload_enable=YES
write_enable=YES
anon_umask=022
xferlog_enable=YES
xferlog_file=$RUN/error.log
secure_chroot_dir=/run/vsftpd/empty
pasv_address=127.0.0.1
`)))
}

func checkFTP(s *stage) {
	s.Helper()
	url := fmt.Sprintf("ftp://127.0.0.1:%d/", frontPort)
	up := s.random("up", size(16, 128)<<20)
	s.prepare("rm", "-f", s.path("ftp/in/up"))
	s.do("curl", "-fsS", "-T", up, url+"in/up")
	s.same(s.path("ftp/in/up"), up)
	s.do("curl", "-fsS", "-o", s.path("got"), url+"pub/down")
	s.same(s.path("got"), s.path("ftp/pub/down"))
	if list := s.do("curl", "-fsS", url+"pub/"); !strings.Contains(list, " down\n") && !strings.Contains(list, " down\r\n") {
		s.Errorf("LIST says %q", list)
	}
}

// serveTunnel starts an echo server, stunnel in front of it, and a stunnel to that.
func serveTunnel(s *stage) {
	s.prepare("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", s.path("key.pem"), "-out", s.path("cert.pem"))
	s.server(backPort, "/usr/bin/python3", s.script("echo.py"), "server", strconv.Itoa(backPort))
	config := func(name string, client bool, accept, connect int) string {
		text := s.expand("foreground = yes\npid =\n[it]\n")
		if client {
			text += "client = yes\n"
		} else {
			text += s.expand("cert = $RUN/cert.pem\nkey = $RUN/key.pem\n")
		}
		return s.file(name, text+fmt.Sprintf("accept = 127.0.0.1:%d\nconnect = 127.0.0.1:%d\n", accept, connect))
	}
	s.server(otherPort, "stunnel4", config("far.conf", false, otherPort, backPort))
	s.server(frontPort, "stunnel4", config("near.conf", true, frontPort, otherPort))
}
