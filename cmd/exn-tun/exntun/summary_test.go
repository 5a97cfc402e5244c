package exntun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/cli"
	"exnet/internal/counter"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/napi"
	"exnet/node/control"
	"exnet/test/testlab"

	tea "charm.land/bubbletea/v2"
)

// threeNodes are nodes in all states that the summary shows.
func threeNodes() []nodeLine {
	status := func(node int, netns string, peers ...control.Peer) *control.Status {
		return &control.Status{
			Fabric: "lab", Dir: "/run/exn/lab", Node: node, PID: 100 + node, NetNS: netns, Peers: peers,
			Interface: control.Interface{Up: true, Addrs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.2.0.%d/24", node)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:2::%d/64", node)),
				netip.MustParsePrefix("fe80::1/64"),
			}},
			Receive: control.ReceiveStatus{Mode: napi.ModeNAPI},
		}
	}
	one := nodeLine{Status: status(1, "/run/netns/a", control.Peer{Node: 2, State: up, Link: "shm"}, control.Peer{Node: 3, State: "connecting"}), in: 34.5e9, out: 1200}
	one.sockets = &control.Sockets{Broker: "b", Connections: []connstats.Connection{{Mode: "direct"}, {Mode: "shadow"}}}
	two := nodeLine{Status: status(2, "/proc/102/ns/net", control.Peer{Node: 1, State: up}, control.Peer{Node: 3, State: "failed", Error: "no memory"}), in: 12e6, out: 999}
	two.sockets = &control.Sockets{}
	two.Receive.Mode, two.Faults = napi.ModeBusyPoll, new("drop=0.1")
	three := nodeLine{Status: status(3, "/proc/7/fd/5")}
	three.Interface = control.Interface{Stats: counter.Interface{RxErrors: 1, TxDropped: 7}}
	return []nodeLine{one, two, three}
}

func TestSummary(t *testing.T) {
	var b bytes.Buffer
	writeSummary(&b, threeNodes())
	writeSummary(&b, nil)
	golden(t, "summary.txt", b.String())
	if strings.Contains(b.String(), "/fd/") {
		t.Error("a namespace is shown as a descriptor")
	}
}

// What goes by direct sockets counts as what goes over exn0 does.
func TestCarriedBy(t *testing.T) {
	s := &control.Status{Interface: control.Interface{Stats: counter.Interface{RxBytes: 1, TxBytes: 20}}}
	for node := range 2 {
		s.Shared = append(s.Shared, control.Shared{Node: node, Total: connstats.Total{Received: connstats.Amount{Bytes: 300}, Sent: connstats.Amount{Bytes: 4000}}})
	}
	if got := carriedBy(s); got.in != 601 || got.out != 8020 {
		t.Errorf("in %d, out %d", got.in, got.out)
	}
}

func TestNamespaceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/run/netns/blue": "blue", "/var/run/netns/x": "x", "/proc/9/ns/net": "pid 9", "/proc/12/ns/net": "pid 12", "/proc/12/ns/net/x": "unnamed", "/proc/9/fd/5": "unnamed", "": "unnamed",
		"/run/netns/\x1b[2J": "?[2J",
	} {
		if got := namespaceOf(&control.Status{PID: 9, NetNS: path}); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestChosen(t *testing.T) {
	all := []connstats.Connection{{PID: 1, Mode: "direct"}, {PID: 2, Mode: "direct"}}
	for _, c := range []struct {
		o    statusOptions
		want int
	}{{statusOptions{}, 2}, {statusOptions{pid: 1}, 1}, {statusOptions{pid: 3}, 0}} {
		if got := c.o.selectConnections(all); len(got) != c.want || got == nil {
			t.Errorf("%+v: %d, want %d", c.o, len(got), c.want)
		}
	}
}

// The screen shows what fits it, goes on when no node is up, and ends by a key or an error.
func TestWatchModel(t *testing.T) {
	m := &watchModel{ctx: t.Context(), l: &looker{o: statusOptions{nodeOptions: nodeOptions{dir: t.TempDir()}, interval: time.Second}}}
	msg := m.readNodes()
	if p, ok := msg.(picture); !ok || p.err != nil || !strings.Contains(p.text, "no node is up") {
		t.Errorf("%+v", msg)
	}
	var b bytes.Buffer
	writeSummary(&b, threeNodes())
	m.Update(picture{text: b.String()})
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 4})
	lines := strings.Split(m.fittingText(), "\n")
	if len(lines) != 4 || !strings.Contains(lines[2], "11 more lines") || lines[3] != "q ends" {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > 40 {
			t.Errorf("%d columns: %q", n, l)
		}
	}
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 50})
	if got := m.fittingText(); got != strings.TrimRight(b.String(), "\n")+"\nq ends" {
		t.Errorf("%q", got)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"}); cmd != nil {
		t.Error("x does something")
	}
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}, {Code: tea.KeyEscape}} {
		if _, cmd := m.Update(key); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%v does not end it", key)
		}
	}
	bad := errors.New("bad")
	if _, cmd := m.Update(picture{err: bad}); cmd == nil || m.err != bad {
		t.Error("an error does not end it")
	}
}

// On a terminal the picture is redrawn in place, and q ends it.
func TestWatchTerminal(t *testing.T) {
	term := onTerminal(t, "TERM=xterm", "status", "--watch", "--interval", "20ms", "--dir", t.TempDir())
	term.sees("no node is up")
	term.sees("q ends")
	term.types("q")
	term.ends(cli.ExitOK)
}

func TestWaitPeers(t *testing.T) {
	looks := 0
	status := func() (*control.Status, error) {
		looks++
		peers := []control.Peer{{State: "connecting"}, {State: "connecting"}}
		for i := range min(looks-1, 2) {
			peers[i].State = up
		}
		return &control.Status{Peers: peers}, nil
	}
	if err := waitPeers(t.Context(), 2, status); err != nil || looks != 3 {
		t.Errorf("%v after %d looks", err, looks)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := waitPeers(ctx, 3, status); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
	if err := waitPeers(t.Context(), 1, func() (*control.Status, error) { return nil, os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// Nodes in the background: each is up, and linked, when exn-tun returns; what goes wrong is said
// as in the foreground; they end by exn-tun down, and their messages are in the log.
func TestRootDetach(t *testing.T) {
	testlab.RequireTUN(t)
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	spaces := []*netns.NS{netnstest.New(t), netnstest.New(t)}
	start := func(i int, more ...string) (int, string, string) {
		args := append([]string{"up", "--dir", dir, "--node", fmt.Sprint(1 + i), "--netns", spaces[i].Path(), "--addr", fmt.Sprintf("10.2.0.%d/24", 1+i), "--detach", "--log-file", log}, more...)
		cmd, stdout, stderr := programCommand(args...)
		_ = cmd.Run() // the state says how
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	if status, stdout, stderr := start(0); status != cli.ExitOK || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("node 1: %d, %q, %q", status, stdout, stderr)
	}
	defer run(context.Background(), "down", "--dir", dir)
	if status, stdout, stderr := start(1, "--wait", "1"); status != cli.ExitOK || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("node 2: %d, %q, %q", status, stdout, stderr)
	}
	if status, stdout, stderr := start(1); status != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, "this namespace already has node 2 of fabric ") {
		t.Errorf("node 2 again: %d, %q, %q", status, stdout, stderr)
	}
	status, stdout, stderr := run(t.Context(), "status", "--dir", dir)
	if status != cli.ExitOK || stderr != "" || !strings.Contains(stdout, "10.2.0.2\n") || strings.Count(stdout, "1/1") != 2 || strings.Count(stdout, "\n") != 4 {
		t.Errorf("%d, %s%s", status, stdout, stderr)
	}
	if status, stdout, stderr = run(t.Context(), "down", "--dir", dir); status != cli.ExitOK || stdout != "node 1 is down\nnode 2 is down\n" {
		t.Errorf("down: %d, %q, %q", status, stdout, stderr)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "level=") {
		t.Errorf("the log: %v, %q", err, text)
	}
}
