package exngo

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// installed lists the GOROOTs of this machine: that of the test, and those that the go
// command has downloaded.
func installed(t *testing.T) []string {
	t.Helper()
	tc, err := findToolchain("")
	if err != nil {
		t.Fatal(err)
	}
	roots := []string{tc.GOROOT}
	more, err := filepath.Glob(filepath.Join(tc.GOMODCACHE, "golang.org", "toolchain@*-"+runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	home, _ := os.UserHomeDir()
	sdk, err := filepath.Glob(filepath.Join(home, "sdk", "go1.*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(append(roots, more...), sdk...)
}

// TestReleases makes the overlay for each Go that is installed, and says which patch
// does not apply, and where.
func TestReleases(t *testing.T) {
	for _, root := range installed(t) {
		text, err := os.ReadFile(filepath.Join(root, "VERSION"))
		if err != nil {
			t.Errorf("%s: %v", root, err)
			continue
		}
		version, _, _ := strings.Cut(string(text), "\n")
		_, err = makeTree(root, overlay{})
		switch {
		case err == nil:
			t.Logf("%s in %s: all patches apply", version, root)
			if version != runtime.Version() && !testing.Short() { // it builds all of the standard library
				t.Run(version, func(t *testing.T) { buildsWith(t, root) })
			}
		case isSupported(version):
			t.Errorf("%s in %s:\n%v", version, root, err)
		default:
			t.Logf("%s in %s is not supported: %v", version, root, err)
		}
	}
}

// buildsWith has another Go build a program, whose connection is direct.
func buildsWith(t *testing.T, root string) {
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("GOTOOLCHAIN", "local")
	both(t, buildProgram(t, copyTree(t, "echo")))
}

// netFiles are the files of package net of the running Go.
func netFiles(t *testing.T) map[string][]byte {
	t.Helper()
	tc, err := findToolchain("")
	if err != nil {
		t.Fatal(err)
	}
	tree := &tree{root: filepath.Join(tc.GOROOT, "src")}
	files, err := tree.releaseNet()
	if err != nil {
		t.Fatal(err)
	}
	if files, err = linuxFiles(files); err != nil {
		t.Fatal(err)
	}
	return files
}

// TestRefusals changes package net in each place that a patch depends on: there is an
// error, and it names the file and what is not as expected.
func TestRefusals(t *testing.T) {
	files := netFiles(t)
	if _, err := patchNet(files); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, old, new, want string }{
		{"tcpsock.go", "ReadFrom(r io.Reader) (int64, error)", "ReadFrom(r io.Reader) (n int64, err error)", "tcpsock.go: func (c *TCPConn) ReadFrom(r io.Reader) (n int64, err error), want func"},
		{"tcpsock.go", "func (c *TCPConn) CloseRead()", "func (c *TCPConn) ShutRead()", "tcpsock.go: no func (c *TCPConn) CloseRead() error"},
		{"tcpsock.go", "type TCPConn struct {\n\tconn\n", "type TCPConn struct {\n\tconn\n\tn int\n", "tcpsock.go: type TCPConn has conn; n int, want conn"},
		{"tcpsock.go", "&TCPConn{conn{fd}}", "&TCPConn{conn{fd: fd}}", "tcpsock.go: TCPConn{conn{fd: fd}}"},
		{"net.go", "type conn struct {\n\tfd *netFD\n", "type conn struct {\n\tfd *netFD\n\tx int\n", "net.go: type conn has fd *netFD; x int"},
		{"tcpsock.go", "// SetLinger sets", "func (c *TCPConn) Abort() error { return nil }\n\n// SetLinger sets", "TCPConn has a method Abort, which exn-go does not know"},
		{"tcpsock_posix.go", "func (ln *TCPListener) accept()", "func (ln *TCPListener) acceptOne()", "tcpsock_posix.go: no func (ln *TCPListener) accept() (*TCPConn, error)"},
		{"udpsock.go", "// UDPAddr represents", "func peek(c Conn) bool { _, ok := c.(*TCPConn); return ok }\n\n// UDPAddr represents", "udpsock.go: peek looks into a TCPConn"},
		{"udpsock.go", "// UDPAddr represents", "var spare = &TCPConn{}\n\n// UDPAddr represents", "udpsock.go: TCPConn{}"},
		{"splice_linux.go", "var pollSplice = poll.Splice", "var pollSplice = splice", "splice_linux.go: no var pollSplice = poll.Splice"},
		{"splice_linux.go", "func spliceFrom(", "func spliceOf(", "splice_linux.go: no func spliceFrom("},
		{"file_posix.go", "package net\n", "package net\nfunc (", "file_posix.go:"},
	} {
		old := string(files[tt.file])
		if strings.Count(old, tt.old) < 1 {
			t.Errorf("%s has no %q", tt.file, tt.old)
			continue
		}
		changed := make(map[string][]byte)
		for name, src := range files {
			changed[name] = src
		}
		changed[tt.file] = []byte(strings.Replace(old, tt.old, tt.new, 1))
		_, err := patchNet(changed)
		if !errors.Is(err, ErrPatch) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q for %q in %s: %v, want %q", tt.new, tt.old, tt.file, err, tt.want)
		}
	}
	delete(files, "splice_linux.go")
	if _, err := patchNet(files); !errors.Is(err, ErrPatch) || !strings.Contains(err.Error(), "splice_linux.go: there is no such file") {
		t.Errorf("without splice_linux.go: %v", err)
	}
}

// TestRuntimeRefusals is TestRefusals for package runtime.
func TestRuntimeRefusals(t *testing.T) {
	tc, err := findToolchain("")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, name := range schedulerFiles {
		files[name] = readFile(t, filepath.Join(tc.GOROOT, "src", "runtime", name))
	}
	if _, calls, err := patchRuntime(files); err != nil || !strings.HasPrefix(calls, runtimeCalls) {
		t.Fatal(calls, err)
	}
	for _, tt := range []struct{ file, old, new, want string }{
		{"netpoll_epoll.go", "func netpoll(delay int64) (gList, int32)", "func netpoll(delay int64) gList", "netpoll_epoll.go: func netpoll(delay int64) gList, want func netpoll(delay int64) (gList, int32)"},
		{"netpoll_epoll.go", "func netpollopen(", "func netpollbegin(", "netpoll_epoll.go: no func netpollopen("},
		{"netpoll_epoll.go", runtimeCalls, "internal/calls", "netpoll_epoll.go: it imports no " + runtimeCalls},
		{"netpoll.go", "func netpollready(toRun *gList,", "func netpollready(toRun *gQueue,", "netpoll.go: func netpollready(toRun *gQueue,"},
	} {
		changed := make(map[string][]byte)
		for name, src := range files {
			changed[name] = src
		}
		changed[tt.file] = bytes.ReplaceAll(files[tt.file], []byte(tt.old), []byte(tt.new))
		if _, _, err := patchRuntime(changed); !errors.Is(err, ErrPatch) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q for %q in %s: %v, want %q", tt.new, tt.old, tt.file, err, tt.want)
		}
	}
}
