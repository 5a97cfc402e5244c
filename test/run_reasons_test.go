package e2e

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"exnet/cmd/exn-run/exnrun"
	"exnet/directsockets/broker/client"
	"exnet/internal/cbuild"
	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

// reason checks that all connections that l's programs say of, on one side, stayed on TCP as choice
// says.
func (l *local) reason(t *testing.T, server bool, choice string) {
	t.Helper()
	all := slices.DeleteFunc(l.connections(t), func(c exnrun.Record) bool { return c.Server != server })
	if len(all) == 0 || slices.ContainsFunc(all, func(c exnrun.Record) bool { return c.Choice != choice }) {
		t.Errorf("%+v, want %q", all, choice)
	}
}

// awaitBroker has a program wait for a broker that is late on a busy machine: one that sleeps would
// not hear of it later.
const awaitBroker = "EXNET_DS_WELCOME=60000"

// other is l for programs with reports, or without exn-run, of their own.
func (l *local) other(t *testing.T, exnRun string) *local {
	return &local{ns: l.ns, exnRun: exnRun, dir: sharedDir(t), env: l.env}
}

// What exn-run says about a connection that stays on TCP is a fact about it.
func TestRootRunReasons(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	const port, late = "8000", "8001"
	checkLeaks(t)
	l := newLocal(t, true)
	l.env = []string{awaitBroker}
	reasons := script(t, "reasons.py")
	// For an offer that nobody takes the broker waits 10 s: meanwhile, the others.
	asleep := l.serve(t, late, "python3", reasons, "serve", late, "asleep")
	sender := startIn(t, l.ns, nil, "env", awaitBroker, l.exnRun, "--loopback", "--verbose", "python3", reasons, "send", late, "127.0.0.1")
	for _, tt := range []struct {
		name, serve, talk, choice string
		server                    bool // of whom it is
		plain                     bool // the client is without exn-run
	}{
		{"no offer", "alone", "talk", "tcp: the client has not offered it", true, true},
		{"another process", "shared", "talk", "tcp: another process has the connection, too", true, false},
		{"standard stream", "stream", "talk", "tcp: it is a standard stream of the program", true, false},
		{"busy thread", "sink", "busy", "tcp: a thread waits in a call on the connection", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, ends := l.other(t, l.exnRun), l.other(t, l.exnRun)
			if tt.plain {
				ends.exnRun = ""
			}
			if tt.serve == "stream" /* of a C library that is as it was */ {
				server.env = append(server.env[:1:1], "EXNET_PATCH=0")
			}
			s := server.serve(t, port, "python3", reasons, "serve", port, tt.serve)
			ends.run(t, "python3", reasons, tt.talk, port)
			s.wait(t)
			if tt.server {
				ends = server
			}
			ends.reason(t, tt.server, tt.choice)
		})
	}
	for _, tt := range []struct {
		name, choice string
		answer       func(c *net.UnixConn)
	}{
		{"broker of another version", "tcp: the broker is of another version", func(c *net.UnixConn) { _, _ = c.Read(make([]byte, 64)); c.Close() }},
		{"silent broker", "tcp: the broker does not answer", func(*net.UnixConn) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := l.other(t, l.exnRun)
			at.env = []string{"EXNET_BROKER=" + odd(t, tt.answer)}
			s := l.other(t, "").serve(t, port, "python3", reasons, "serve", port, "alone")
			at.run(t, "python3", reasons, "talk", port)
			s.wait(t)
			at.reason(t, false, tt.choice)
		})
	}
	t.Run("not in time", func(t *testing.T) {
		sender.says(t, "tcp: offered, and not taken in time")
		sender.end(t)
		asleep.end(t)
	})
}

// Every connection that is not direct has a reason, also those that the probes of the library give
// up in odd ways, offered at once.
func TestRootRunReasonsOfProbes(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "cc")
	checkLeaks(t)
	l := newLocal(t, true)
	probes := filepath.Join(t.TempDir(), "probes")
	files, err := filepath.Glob("../directsockets/preload/probes/*.c")
	if err != nil || len(files) == 0 {
		t.Fatalf("no probes (%v)", err)
	}
	c := cbuild.Command{Flags: []string{"-Wno-unused-result"}, Files: files, Libs: []string{"-ldl", "-lpthread"}}
	if err := c.Run(t.Context(), probes); err != nil {
		t.Fatal(err)
	}
	l.env = []string{"EXNET_DS_SENDS=0", "EXNET_DS_BYTES=0"}
	for _, name := range []string{"half-closed", "scm-rights", "oob", "sigio", "fork-both-use", "prefork-server", "exec-stdin", "exec-passive", "exec-fails",
		"inherited-stdio", "inherited-shared", "peer-killed", "linger-0", "reuse-4-tuple", "accept-later", "one-shot", "one-shot-fork", "close-both", "sharers-both",
		"sharers-killed", "dup2-over", "names-options"} {
		l.run(t, probes, name, "cold")
	}
	for _, c := range l.connections(t) {
		if c.Choice == "tcp" || c.Choice == "direct, then tcp" {
			t.Errorf("no reason: %+v", c)
		}
	}
}

// odd is a broker whose connections answer has, which ends with the test.
func odd(t *testing.T, answer func(c *net.UnixConn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "odd.sock")
	ln, err := net.ListenUnix(client.Network, &net.UnixAddr{Name: path, Net: client.Network})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			defer c.Close()
			answer(c)
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return path
}

// A node that ends when it has been offered a connection: the other's broker says so.
func TestRootRunUnreachable(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	const port, server = "8000", "10.2.0.2"
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	spaces := [2]*netns.NS{netnstest.New(t), netnstest.New(t)}
	dir := t.TempDir()
	near := startDaemon(t, dir, spaces[0], "10.2.0.1/24")
	_, stop := startDaemonStop(t, dir, spaces[1], server+"/24")
	eventually(t, func() error {
		s, err := near.Status()
		if err == nil && (len(s.Peers) != 1 || s.Peers[0].State != "up") {
			err = errors.New("no peer")
		}
		return err
	})
	s := startIn(t, spaces[1], nil, "env", awaitBroker, exnRun, "python3", script(t, "reasons.py"), "serve", port, "asleep", server)
	s.listens(t, port)
	c := startIn(t, spaces[0], nil, "env", awaitBroker, exnRun, "--verbose", "python3", script(t, "reasons.py"), "send", port, server)
	c.says(t, "tcp: offered, and not taken")
	stop() // what the client sends from now on waits in its socket
	c.says(t, "tcp: the peer's node cannot be reached")
	c.end(t)
	s.end(t)
}

// A socket whose first connect was refused is judged by the address of its second one. No report is
// asked for: with one, the library looks at every connection's addresses at once.
func TestRootRunConnectAgain(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	const refused, port = "8000", "8001"
	checkLeaks(t)
	l := newLocal(t, true)
	again := script(t, "again.py")
	for _, tt := range []struct{ rule, want string }{{refused, "direct"}, {port, "tcp"}} {
		rules := filepath.Join(l.dir, "rules")
		write(t, rules, "tcp * client 127.0.0.1 "+tt.rule+"\n")
		server := l.serve(t, port, "python3", again, "serve", port)
		startIn(t, l.ns, nil, l.exnRun, "--loopback", "--rules", rules, "--", programPath("python3"), again, "talk", refused, port, tt.want).wait(t)
		server.wait(t)
	}
}
