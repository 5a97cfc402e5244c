package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/napi"
	"exnet/node/control"
	"exnet/node/tun"
	"exnet/test/testlab"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// running is a daemon in this process, in a namespace of its own.
type running struct {
	*Daemon
	ns   *netns.NS
	done chan error
	stop func()
}

// start brings up a daemon until stop is called, or the test's end.
func start(t *testing.T, dir string, ns *netns.NS, addrs ...string) *running {
	t.Helper()
	return startWith(t, ns, Config{Dir: dir, Addrs: prefixes(addrs...)})
}

// startWith is start with a configuration, but for the namespace.
func startWith(t *testing.T, ns *netns.NS, cfg Config) *running {
	t.Helper()
	// At normal priority: the test's own goroutines have to get their turn.
	cfg.NetNS, cfg.Fair = ns.Path(), true
	d, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Daemon: d, ns: ns, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.done <- d.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-r.done, d.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func requireTUN(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no success within the time: %s", what)
		}
	}
}

func ask(t *testing.T, dir string, n fabric.NodeID) *control.Client {
	t.Helper()
	nodes, err := control.Nodes(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range nodes {
		if d.Node == n {
			c, err := control.Dial(dir, d)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	t.Fatalf("node %d is not among %v", n, nodes)
	return nil
}

// linked waits until a node has a link to its only peer.
func linked(t *testing.T, c *control.Client) {
	t.Helper()
	eventually(t, "linked", func() bool {
		s, err := c.Status()
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Peers) == 1 && s.Peers[0].State == "up"
	})
}

// Nodes with a TAP device and with a TUN device are on one fabric, and reach each other.
func TestRootTAP(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := startWith(t, netnstest.New(t), Config{Dir: dir, TAP: true, Addrs: prefixes("10.2.0.1/24", "fd00:10:2::1/64")})
	b := start(t, dir, netnstest.New(t), "10.2.0.2/24", "fd00:10:2::2/64")
	c := ask(t, dir, 1)
	linked(t, c)
	for ns, addrs := range map[*netns.NS][]string{a.ns: {"10.2.0.2", "fd00:10:2::2"}, b.ns: {"10.2.0.1", "fd00:10:2::1"}} {
		for _, addr := range addrs {
			if out, err := ping(ns, addr); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
	s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Ethernet == nil || len(s.Ethernet.Stations) != 0 || s.Interface.MTU != tun.MaxFrameMTU || s.Interface.MAC != "2e:87:04:07:00:01" {
		t.Errorf("%+v, %+v", s.Ethernet, s.Interface)
	}
	found := false
	for _, n := range s.Neighbors {
		found = found || n.Addr == netip.MustParseAddr("10.2.0.2") && n.Node != nil && *n.Node == 2 && n.MAC == "2e:87:04:07:00:02"
	}
	if !found {
		t.Errorf("neighbours %+v", s.Neighbors)
	}
	if what := a.String(); !strings.Contains(what, "netstack is bypassed") {
		t.Error(what)
	}
	// The kernel removes the IPv6 addresses of an interface that is taken down.
	for _, state := range []string{"down", "up"} {
		if out, err := runIn(a.ns, "ip", "link", "set", "exn0", state); err != nil {
			t.Fatal(err, out)
		}
	}
	eventually(t, "the addresses are there again", func() bool {
		_, err := ping(a.ns, "fd00:10:2::2")
		return err == nil
	})
}

func TestTAPRefused(t *testing.T) {
	for _, c := range []Config{{MTU: tun.MaxFrameMTU + 1}, {NoFastPath: true}} {
		c.Dir, c.TAP = "/somewhere", true
		if _, err := c.WithDefaults(); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRootTwoDaemons(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24", "fd00:10:2::1/64")
	b := start(t, dir, netnstest.New(t), "10.2.0.2/24", "fd00:10:2::2/64")
	c := ask(t, dir, 1)
	linked(t, c)
	for _, addr := range []string{"10.2.0.2", "fd00:10:2::2"} {
		if out, err := ping(a.ns, addr); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Node != 1 || s.PID != os.Getpid() || s.Dir != dir || s.RealTime || !s.FastPath || s.Threshold.Eager != 480 {
		t.Errorf("status %+v", s)
	}
	if i := s.Interface; !i.Up || i.Name != "exn0" || i.MAC != "2e:87:04:07:00:01" || len(i.Addrs) != 3 || i.Stats.TxPackets < 6 || i.Stats.RxBytes == 0 {
		t.Errorf("interface %+v", i)
	}
	if len(s.Neighbors) == 0 || s.Neighbors[0].Addr != netip.MustParseAddr("10.2.0.2") || s.Neighbors[0].Node == nil || *s.Neighbors[0].Node != 2 {
		t.Errorf("neighbours %+v", s.Neighbors)
	}
	if p := s.Peers[0]; p.Node != 2 || p.Hops != 1 || p.Links != 1 || p.MTU != 65535 || len(p.Addrs) != 2 {
		t.Errorf("peers %+v", s.Peers)
	}
	if len(s.Routes) != 3 || len(s.Receive.Units) != 2 || s.Receive.Units[0].Frames == 0 || len(s.Counters) < 100 {
		t.Errorf("%d routes, %d units, %d counters", len(s.Routes), len(s.Receive.Units), len(s.Counters))
	}

	if err := c.Set(control.Settings{Mode: new(napi.ModeBusyPoll), CoalesceUsecs: new(int64(30))}); err != nil {
		t.Error(err)
	}
	if err := c.Set(control.Settings{Mode: new(napi.ModeInterrupt), CoalesceFrames: new(int(-1))}); err == nil {
		t.Error("-1 frames were accepted")
	}
	if s, err = c.Status(); err != nil || s.Receive.Mode != napi.ModeBusyPoll || s.Receive.CoalesceUsecs != 30 {
		t.Errorf("%+v, %v", s.Receive, err)
	}
	if out, err := ping(b.ns, "10.2.0.1"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	// One is told to end; the other forgets it.
	stopped := make(chan error)
	stopper := ask(t, dir, 2)
	go func() { stopped <- stopper.Stop(t.Context()) }()
	b.done <- <-b.done
	b.stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	eventually(t, "gone", func() bool {
		s, err := c.Status()
		return err == nil && len(s.Peers) == 0
	})
	a.stop()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
}

func ping(ns *netns.NS, addr string) (string, error) {
	return runIn(ns, "ping", "-c", "3", "-i", "0.02", "-W", "2", addr)
}

func runIn(ns *netns.NS, argv ...string) (string, error) {
	var out strings.Builder
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Run(cmd)
	return out.String(), err
}

func TestRootCapture(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24")
	start(t, dir, netnstest.New(t), "10.2.0.2/24")
	eventually(t, "ping", func() bool { _, err := ping(a.ns, "10.2.0.2"); return err == nil })

	var got testlab.Output
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	c := ask(t, dir, 1)
	go func() { done <- c.Capture(ctx, &got, 0) }()
	eventually(t, "header", func() bool { return got.String() != "" })
	if err := ask(t, dir, 1).Capture(t.Context(), io.Discard, 0); err == nil || !strings.Contains(err.Error(), "another capture") {
		t.Errorf("a second capture: %v", err)
	}
	if out, err := ping(a.ns, "10.2.0.2"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	r, err := pcapgo.NewNgReader(strings.NewReader(got.String()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	icmp := 0
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default); p.Layer(layers.LayerTypeICMPv4) != nil {
			icmp++
		}
	}
	if icmp != 6 {
		t.Errorf("%d echo requests and replies, want 6", icmp)
	}
	// A client that just goes ends its capture, too.
	c = ask(t, dir, 1)
	go func() { done <- c.Capture(t.Context(), io.Discard, 64) }()
	eventually(t, "capturing", a.capturing.Load)
	c.Close()
	<-done
	eventually(t, "over", func() bool { return !a.capturing.Load() })
}

// Whatever a client sends, the daemon goes on.
func TestRootControlNoise(t *testing.T) {
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	start(t, dir, netnstest.New(t), "10.2.0.1/24")
	for _, line := range []string{"", "\n", "{}\n", "[1]\n", `{"op":"fly"}` + "\n", `{"opp":"status"}` + "\n", "\x00\xff\n", strings.Repeat("x", 1<<17)} {
		conn, err := net.Dial("unix", emp.File(dir, 1, control.Suffix))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(line)) // the daemon may have had enough
		_ = conn.(*net.UnixConn).CloseWrite()
		answer, _ := bufio.NewReader(conn).ReadString('\n')
		if strings.TrimSpace(line) != "" && !strings.Contains(answer, `"error"`) && len(line) < 1000 {
			t.Errorf("%q: %q", line, answer)
		}
		conn.Close()
	}
	if _, err := ask(t, dir, 1).Status(); err != nil {
		t.Error(err)
	}
}

// A client that asks and asks and reads no answer does not hold a node that ends.
func TestRootControlUnread(t *testing.T) {
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24")
	conn, err := net.Dial("unix", emp.File(dir, 1, control.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line := strings.Repeat(`{"op":"status"}`+"\n", 100)
	for full := false; !full; { // neither way has room any more: an answer is being written
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := conn.Write([]byte(line))
		full = errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil && !full {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		a.stop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(3 * time.Minute):
		conn.Close()
		t.Fatal("the node waits for the client")
	}
}

// What cannot be started leaves nothing.
func TestRootStartFails(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	ns := netnstest.New(t)
	a := start(t, dir, ns, "10.2.0.1/24")
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"namespace":  {Config{NetNS: "no-such-namespace"}, "ip netns add"},
		"node":       {Config{Node: new(fabric.NodeID(1))}, "in use"},
		"address":    {Config{Addrs: prefixes("10.2.0.1/24")}, "taken"},
		"congestion": {Config{NetNS: ns.Path(), Interface: "exn1", Addrs: prefixes("10.3.0.1/24"), Congestion: "none"}, "congestion control"},
		"interface":  {Config{NetNS: ns.Path()}, "exn0"},
	} {
		c.cfg.Dir, c.cfg.Fair = dir, true
		d, err := Start(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if d != nil {
			t.Errorf("%s: a daemon", name)
		}
	}
	if nodes, err := control.Nodes(dir); err != nil || len(nodes) != 1 {
		t.Errorf("%v, %v", nodes, err)
	}
	// The interface is taken from under it: it ends, and says why.
	if err := ns.Run(exec.Command("ip", "link", "del", "exn0")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.done:
		if err == nil {
			t.Error("ended without a reason")
		}
		a.done <- nil
	case <-time.After(3 * time.Minute):
		t.Error("goes on without its interface")
	}
}
