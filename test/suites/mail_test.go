package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mailScenarios take mail and give it back.
func mailScenarios() []scenario {
	return []scenario{
		{
			name: "exim", long: true, // a process for each connection
			needs: map[string]string{"exim4": "exim4-daemon-light", "curl": "curl"},
			tcp:   "it listens as root, and changes its user before it accepts: the listener is not that user's",
			serve: serveExim, check: checkExim,
		},
		{
			name: "dovecot", long: true, // its login process passes the connection on
			needs: map[string]string{"dovecot": "dovecot-imapd", "curl": "curl"},
			tcp:   "its login process passes the connection on to another",
			serve: serveDovecot, check: checkDovecot,
		},
	}
}

func serveExim(s *stage) {
	s.prepare("sh", "-c", "mkdir -p spool mail && chown -R Debian-exim spool mail")
	s.server(frontPort, "exim4", "-bdf", "-q1h", "-C", s.file("exim.conf", s.expand(`primary_hostname = localhost
exim_user = Debian-exim
local_interfaces = 127.0.0.1
daemon_smtp_ports = `+strconv.Itoa(frontPort)+`
spool_directory = $RUN/spool
log_file_path = $RUN/exim.%s
pid_file_path = $RUN/spool/pid
acl_smtp_rcpt = accept
acl_smtp_data = accept
message_size_limit = 100M
smtp_accept_max_per_connection = 10000
queue_only_load = 1000
deliver_queue_load_max = 1000
begin acl
accept:
  accept
begin routers
all:
  driver = accept
  transport = file
begin transports
file:
  driver = appendfile
  directory = $RUN/mail
  maildir_format
  create_directory
  user = Debian-exim
`)))
}

// letter writes a message of about n bytes and returns its path and text.
func letter(s *stage, n int) (path, text string) {
	var b strings.Builder
	b.WriteString("From: a@localhost\r\nTo: b@localhost\r\nSubject: a letter\r\n\r\n")
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d %s\r\n", i, strings.Repeat("x", i*7%70))
	}
	return s.file("letter", b.String()), b.String()
}

// checkExim sends letters and looks for them in the mailbox.
func checkExim(s *stage) {
	s.Helper()
	path, text := letter(s, size(4, 16)<<20)
	_, body, _ := strings.Cut(text, "\r\n\r\n")
	body = strings.ReplaceAll(body, "\r\n", "\n")
	for range 3 {
		s.prepare("sh", "-c", "rm -f mail/new/*")
		s.do("curl", "-fsS", "--mail-from", "a@localhost", "--mail-rcpt", "b@localhost", "-T", path, fmt.Sprintf("smtp://127.0.0.1:%d/localhost", frontPort))
		s.prepare("sh", "-c", `for i in $(seq 600); do ls mail/new/* >/dev/null 2>&1 && exit; sleep 0.1; done; cat exim.*; exit 1`)
		found, _ := filepath.Glob(s.path("mail/new/*")) // a good pattern
		got, err := os.ReadFile(found[0])
		if err != nil {
			s.Fatal(err)
		}
		if !strings.HasSuffix(string(got), body) {
			s.Errorf("the mailbox has %d bytes that do not end in the %d that were sent", len(got), len(body))
		}
	}
}

func serveDovecot(s *stage) {
	s.prepare("sh", "-c", "mkdir -p mail run && chown -R nobody mail")
	s.server(frontPort, "dovecot", "-F", "-c", s.file("dovecot.conf", s.expand(`base_dir = $RUN/run
state_dir = $RUN/run
log_path = $RUN/error.log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:$RUN/mail
first_valid_uid = 1
mail_uid = nobody
mail_gid = nogroup
service imap-login {
  inet_listener imap {
    port = `+strconv.Itoa(frontPort)+`
  }
  inet_listener imaps {
    port = 0
  }
}
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=$RUN/mail
}
`)))
}

// checkDovecot stores letters and fetches them.
func checkDovecot(s *stage) {
	s.Helper()
	path, text := letter(s, size(4, 16)<<20)
	url := fmt.Sprintf("imap://127.0.0.1:%d/INBOX", frontPort)
	for i := range 3 {
		s.do("curl", "-fsS", "-u", "b:secret", "-T", path, url)
		s.do("curl", "-fsS", "-u", "b:secret", "-o", s.path("got"), fmt.Sprintf("%s;MAILINDEX=%d", url, i+1))
		got, err := os.ReadFile(s.path("got"))
		if err != nil {
			s.Fatal(err)
		}
		if string(got) != text {
			s.Errorf("%d bytes came that are not the %d that were stored", len(got), len(text))
		}
	}
}
