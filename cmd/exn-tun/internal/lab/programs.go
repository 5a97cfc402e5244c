package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/tempdir"
)

// programsLen is the length of the file that a server sends.
const programsLen = 1 << 20

// programsTime bounds a pair of programs, on a busy machine.
const programsTime = time.Minute

// pair is two programs: a server that sends a file, and a client that fetches it.
type pair struct {
	name string
	// needs are the programs that a host may not have.
	needs []string
	// server prints a line with its port, and sends the file to the client that connects. Its
	// address and the file follow these arguments.
	server []string
	// client prints what it receives. The server's address, in brackets for IPv6, and the port
	// follow these arguments.
	client []string
}

// pairs are tried in this order. Even a minimal Debian has the first.
var pairs = []pair{
	{"perl and bash", []string{"perl", "bash"}, []string{"perl", "-MIO::Socket::IP", "-e", perlServer}, []string{"bash", "-c", `exec 3<>"/dev/tcp/$(tr -d '[]' <<<"$0")/$1" && cat <&3`}},
	{"python3 and curl", []string{"python3", "curl"}, []string{"python3", "-u", "-c", pythonServer}, []string{"sh", "-c", `exec curl -sSf --noproxy '*' "http://$0:$1/data"`}},
}

const perlServer = `$| = 1; my ($addr, $file) = @ARGV;
my $s = IO::Socket::IP->new(Listen => 1, LocalHost => $addr, LocalPort => 0) or die "$@\n";
print "port ", $s->sockport, "\n";
my $c = $s->accept or die "$!\n"; open my $f, "<", $file or die "$!\n";
local $/; print {$c} <$f>; close $c or die "$!\n"`

const pythonServer = `import functools, http.server, os, socket, socketserver, sys
class Server(socketserver.TCPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
s = Server((sys.argv[1], 0), functools.partial(Handler, directory=os.path.dirname(sys.argv[2])))
print("port", s.server_address[1])
s.handle_request()`

// Programs sends a file from b to a with each pair of programs that the host has, and compares
// its SHA-256 sum. It returns the names of the pairs that succeeded, nil if the host has none.
func Programs(ctx context.Context, p Path, f Family) (names []string, err error) {
	dir, err := tempdir.New("exn-demo")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tempdir.Remove(dir)) }()
	data := make([]byte, programsLen)
	rand.NewChaCha8([32]byte{}).Read(data)
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	for _, q := range pairs {
		if !q.hasPrograms() {
			continue
		}
		if err := q.sendFile(ctx, p, f, file, sha256.Sum256(data)); err != nil {
			return names, fmt.Errorf("%s: %w", q.name, err)
		}
		names = append(names, q.name)
	}
	return names, nil
}

// hasPrograms reports whether the host has both programs.
func (q pair) hasPrograms() bool {
	for _, name := range q.needs {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}

// portLine is what a server prints.
var portLine = regexp.MustCompile(`^port (\d+)\n$`)

// sendFile sends the file from the server in b to the client in a.
func (q pair) sendFile(ctx context.Context, p Path, f Family, file string, sum [sha256.Size]byte) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programsTime, fmt.Errorf("not done within %v", programsTime))
	defer cancel()
	addr := p.B.Addrs[f].String()
	server, said := programOf(ctx, append(q.server[:len(q.server):len(q.server)], addr, file))
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.B.NS.Start(server); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = server.Process.Kill() // it may wait for a client
		}
		if ended := server.Wait(); ended != nil && (err == nil || said.Len() > 0) {
			err = errors.Join(err, fmt.Errorf("%s: %w%s", q.server[0], ended, lastLine(said.String())))
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	m := portLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%s did not start: it printed %q (%v)", q.server[0], line, err)
	}
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	client, complaint := programOf(ctx, append(q.client[:len(q.client):len(q.client)], addr, m[1]))
	got := sha256.New()
	client.Stdout = got
	if err := p.A.NS.Run(client); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%w%s", err, lastLine(complaint.String()))
	}
	if !bytes.Equal(got.Sum(nil), sum[:]) {
		return fmt.Errorf("received data with SHA-256 sum %s, want %s", hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(sum[:]))
	}
	return nil
}

// programOf prepares a program that ends with ctx. The buffer takes its standard error.
func programOf(ctx context.Context, argv []string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	// Out of the terminal's process group: Ctrl-C is for exn-tun. What it starts ends with it:
	// exn-run has a child if it reports, and redis-benchmark spins for ever without its server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	complaint := new(bytes.Buffer)
	cmd.Stderr = complaint
	return cmd, complaint
}
