package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns/netnstest"
)

// seeIn has the agent see a process as one of a container.
func (l *lab) seeIn(pid int, container string) {
	l.t.Helper()
	from, to := filepath.Join(procDir, strconv.Itoa(pid)), filepath.Join(l.proc, strconv.Itoa(pid))
	put(l.t, filepath.Join(to, "cgroup"), "0::/kubepods.slice/cri-containerd-"+container+".scope\n")
	for _, name := range []string{"ns", "environ", "maps", "exe", "stat", "comm", "cmdline", "status"} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// A pod's rules count also if its runtime tells them late: what is direct by then goes back. They
// are about the connections of the pod alone.
func TestRootPodRules(t *testing.T) {
	netnstest.Require(t)
	told, asked := make(chan struct{}), make(chan string, 8)
	tell := sync.OnceFunc(func() { close(told) })
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir()}
	l.rules = func(ctx context.Context, container string) ([]broker.Rule, error) {
		asked <- container
		select {
		case <-told:
			return []broker.Rule{{Port: 8080}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l.build()
	l.start()
	defer tell()
	for _, port := range []int{8080, 8081} {
		server := l.program(inGo, "server", "0.0.0.0", port)
		s := l.run(l.b, server)
		l.seeIn(server.Process.Pid, testID)
		s.expect("ready")
	}
	c := l.chat(l.a, inGo, "client", "172.30.0.3", 8080)
	l.becomesDirect(l.a, c)
	if got := <-asked; got != testID {
		t.Fatalf("rules were looked for of %q", got)
	}
	tell()
	l.within(timeLimit, "back on TCP by the pod's rule", func() bool {
		if got := c.do("ask 20 60"); got != "ok" {
			t.Fatal("ask: ", got)
		}
		x, y := l.last(l.a), l.last(l.b)
		return x != nil && x.Mode != connstats.ModeDirect.String() && y != nil && y.Rule == "off --port 8080 # of the pod"
	})
	d := l.chat(l.a, inGo, "client", "172.30.0.3", 8081)
	l.becomesDirect(l.a, d)
}

// Rules that are wrong are told by one line, and the broker goes without. A search that is ended
// says nothing.
func TestRuleFails(t *testing.T) {
	var text strings.Builder
	a := &agent{log: slog.New(slog.NewTextHandler(&text, nil))}
	a.lines = newAccounts(a.log)
	server, err := broker.New(broker.Config{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := &place{server: server}
	for _, c := range []struct {
		rules []broker.Rule
		err   error
		want  string
	}{
		{nil, errors.New("line 1: perhaps"), "level=WARN msg=\"direct sockets: the pod has no rules\" name=\"\" reason=\"line 1: perhaps\"\n"},
		{make([]broker.Rule, 1000), nil, "reason=\"there are too many\"\n"},
		{nil, nil, ""},
		{make([]broker.Rule, 2), nil, "rules=2\n"},
	} {
		text.Reset()
		a.rules = func(context.Context, string) ([]broker.Rule, error) { return c.rules, c.err }
		a.findRules(p, testID)()
		if got := text.String(); !strings.HasSuffix(got, c.want) || strings.Count(got, "\n") != strings.Count(c.want, "\n") {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	text.Reset()
	a.rules = func(ctx context.Context, _ string) ([]broker.Rule, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("x: %w", ctx.Err())
	}
	a.findRules(p, testID)()
	if text.Len() > 0 {
		t.Errorf("an ended search says %q", text.String())
	}
}
