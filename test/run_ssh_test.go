package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-run/exnrun"
	"exnet/internal/longtest"
)

// sshLab is a server and a user's key for the programs that use ssh.
type sshLab struct {
	*local
	server *process
	data   string // a file
}

// ssh is the beginning of a command.
func (l *sshLab) ssh() []string {
	return []string{"ssh", "-F", "none", "-p", sshPort, "-i", filepath.Join(l.dir, "user"), "-l", "root", "-o", "BatchMode=yes",
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=" + filepath.Join(l.dir, "known_hosts"),
		"-o", "LogLevel=ERROR"}
}

// newSSHLab starts sshd.
func newSSHLab(t *testing.T, l *local) *sshLab {
	t.Helper()
	file := func(name string) string { return filepath.Join(l.dir, name) }
	for _, name := range []string{"host", "user"} {
		if out, err := runIn(t, l.ns, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file(name)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	public, err := os.ReadFile(file("user.pub"))
	if err != nil {
		t.Fatal(err)
	}
	writeForAll(t, file("authorized"), public)
	write(t, file("sshd_config"), fmt.Sprintf("Port %s\nHostKey %s\nPidFile none\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"+
		"PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\nMaxStartups 100\nSubsystem sftp internal-sftp\n"+
		"Match User nobody\nForceCommand internal-sftp\n",
		sshPort, file("host"), file("authorized")))
	// sshd insists on /run/sshd, which only its service makes: a /run of its own, in
	// which only the brokers' directory is the machine's.
	const prepare = `mkdir -p /run/exn && mkdir "$0" && mount --bind /run/exn "$0" && mount -t tmpfs tmpfs /run &&
		mkdir -m 755 /run/sshd /run/exn && mount --bind "$0" /run/exn && exec "$@"`
	s := startIn(t, l.ns, nil, append([]string{"unshare", "--mount", "sh", "-c", prepare, file("exn")},
		l.argv([]string{programPath("sshd"), "-D", "-e", "-f", file("sshd_config")})...)...)
	s.listens(t, sshPort)
	path, _ := randomFile(t, 4<<20)
	return &sshLab{l, s, path}
}

// direct runs use, which moves data and looks at it, until a program of that name had
// a direct connection: a process that is to leave its copy of one to another may be
// late on a busy machine. use is given a lab for its reports and a file that is not
// there. Without exn-run it runs once.
func (l *sshLab) direct(t *testing.T, program string, use func(l *sshLab, got string)) {
	t.Helper()
	for end := time.Now().Add(hangTime); ; {
		at := &sshLab{&local{ns: l.ns, exnRun: l.exnRun, dir: l.dir}, l.server, l.data}
		at.dir = sharedDir(t)
		for _, name := range []string{"user", "known_hosts"} {
			_ = os.Link(filepath.Join(l.dir, name), filepath.Join(at.dir, name)) // known_hosts is there later
		}
		use(at, filepath.Join(at.dir, "got"))
		if l.exnRun == "" {
			return
		}
		all := at.connections(t)
		if slices.ContainsFunc(all, func(c exnrun.Record) bool { return c.Program == program && c.Path == "direct" }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no connection of %s is direct: %+v", program, all)
		}
	}
}

// sshd executes itself anew for each connection, with the connection inherited, and
// has a child in a sandbox use it first: the session is direct all the same.
func TestRootRunSSH(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "curl", "nc", "python3", "rsync", "ssh", "ssh-keygen", "sshd", "unshare")
	eachLocal(t, func(t *testing.T, l *local) {
		lab := newSSHLab(t, l)
		for _, tt := range []struct {
			name, program string
			use           func(t *testing.T, l *sshLab, got string)
		}{
			{"down", "ssh", func(t *testing.T, l *sshLab, got string) {
				l.run(t, into(got, append(l.ssh(), "127.0.0.1", "cat", l.data))...)
			}},
			{"up", "ssh", func(t *testing.T, l *sshLab, got string) {
				f, err := os.Open(l.data)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				startIn(t, l.ns, f, l.argv(append(l.ssh(), "127.0.0.1", "cat > "+got))...).wait(t)
			}},
			{"scp", "ssh", func(t *testing.T, l *sshLab, got string) {
				l.run(t, slices.Concat([]string{"scp", "-P", sshPort}, withoutUser(l.ssh()), []string{l.data, "root@127.0.0.1:" + got})...)
			}},
			{"rsync", "ssh", func(t *testing.T, l *sshLab, got string) {
				l.run(t, "rsync", "-e", strings.Join(l.ssh(), " "), "127.0.0.1:"+l.data, got)
			}},
			{"git", "ssh", cloned},
			{"nc", "nc", func(t *testing.T, l *sshLab, got string) {
				l.run(t, into(got, append(l.ssh(), "-o", "ProxyCommand=nc 127.0.0.1 "+sshPort, "nowhere", "cat", l.data))...)
			}},
			{"user", "ssh", userCopied},
			{"forwarded", "curl", forwarded},
			{"master", "ssh", mastered},
		} {
			t.Run(tt.name, func(t *testing.T) {
				lab.direct(t, tt.program, func(l *sshLab, got string) {
					tt.use(t, l, got)
					same(t, got, l.data)
				})
			})
		}
		lab.server.end(t)
		l.check(t, expect{"sshd", true, 7, 4 << 20})
	})
}

// into is argv with its output in a file.
func into(file string, argv []string) []string {
	return append([]string{"sh", "-c", `"$@" > "$0"`, file}, argv...)
}

// withoutUser is the options of ssh that scp has, too.
func withoutUser(ssh []string) (options []string) {
	for i := 1; i < len(ssh); i += 2 {
		if ssh[i] != "-p" && ssh[i] != "-l" {
			options = append(options, ssh[i], ssh[i+1])
		}
	}
	return options
}

// writeForAll writes a file that other users may read, too.
func writeForAll(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// userCopied gets the file as a user other than root, of whose session sshd keeps a second process
// that has the connection.
func userCopied(t *testing.T, l *sshLab, got string) {
	data, err := os.ReadFile(l.data)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.dir, "data")
	writeForAll(t, file, data)
	l.run(t, slices.Concat([]string{"scp", "-P", sshPort}, withoutUser(l.ssh()), []string{"nobody@127.0.0.1:" + file, got})...)
}

// cloned gets the file by git.
func cloned(t *testing.T, l *sshLab, got string) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not there: apt-get install git")
	}
	repo := filepath.Join(l.dir, "repo")
	for _, argv := range [][]string{{"init", "-q", repo}, {"-C", repo, "add", "data"},
		{"-C", repo, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "data"}} {
		if argv[0] == "-C" && argv[2] == "add" {
			data, err := os.ReadFile(l.data)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(repo, "data"), string(data))
		}
		if out, err := runIn(t, l.ns, nil, append([]string{"git"}, argv...)...); err != nil {
			t.Fatalf("git %q: %v\n%s", argv, err, out)
		}
	}
	l.env = []string{"GIT_SSH_COMMAND=" + strings.Join(l.ssh(), " ")}
	argv := []string{"git", "clone", "-q", "ssh://127.0.0.1" + repo, filepath.Join(l.dir, "clone")}
	if l.exnRun == "" {
		argv = slices.Concat([]string{"env"}, l.env, argv)
	}
	l.run(t, argv...)
	if err := os.Rename(filepath.Join(l.dir, "clone", "data"), got); err != nil {
		t.Fatal(err)
	}
}

// forwarded gets the file from a web server by way of a port that ssh forwards.
func forwarded(t *testing.T, l *sshLab, got string) {
	const web, port = "8001", "8002"
	server := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
	s := server.serve(t, web, "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", filepath.Dir(l.data), web)
	tunnel := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
	f := tunnel.serve(t, port, append(l.ssh(), "-N", "-L", port+":127.0.0.1:"+web, "127.0.0.1")...)
	l.run(t, "curl", "-sS", "-f", "-o", got, "http://127.0.0.1:"+port+"/"+filepath.Base(l.data))
	f.end(t)
	s.end(t)
}

// mastered gets the file by way of a connection that another ssh has made.
func mastered(t *testing.T, l *sshLab, got string) {
	control := filepath.Join(l.dir, "control")
	m := l.start(t, append(l.ssh(), "-M", "-S", control, "-N", "127.0.0.1")...)
	m.until(t, "control socket", func() bool {
		c, err := net.Dial("unix", control)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	user := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
	user.run(t, into(got, append(l.ssh(), "-S", control, "127.0.0.1", "cat", l.data))...)
	user.run(t, append(l.ssh(), "-S", control, "-O", "exit", "127.0.0.1")...)
	m.end(t) // its status is that of a connection that was cut
}
