package pressure

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

// ip runs the command of this name in a node's namespace.
func (n *node) ip(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("ip", args...)
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	if err := n.ns.Run(cmd); err != nil {
		t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// moves waits until a stream has moved more bytes.
func (p *process) moves(t *testing.T) {
	t.Helper()
	p.tell(t, "where")
	was := p.number(t, "at")
	eventually(t, func() error {
		p.tell(t, "where")
		if now := p.number(t, "at"); now <= was+1<<20 {
			return fmt.Errorf("%s: no bytes move: %d\n", p.Name, now)
		}
		return nil
	})
}

// Streams outlive it when the interface changes: its MTU, and when it goes down and up.
func TestRootInterfaceChanges(t *testing.T) {
	longtest.Skip(t)
	const port = 7000
	rounds := size(1, 10)
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	var servers, streams []*process
	for i, kind := range allKinds {
		s := b.serve(t, kind, "echo", port+i)
		c := a.run(t, kind, "stream", b.addr, port+i, 2)
		c.expect(t, "streaming")
		servers, streams = append(servers, s), append(streams, c)
	}
	all := func(what string) {
		t.Helper()
		start := time.Now()
		for _, s := range streams {
			s.moves(t)
		}
		t.Logf("%s: all streams move, %v later", what, time.Since(start).Round(time.Millisecond))
	}
	all("begin")
	for i, p := range servers {
		eventually(t, func() error {
			if p.kind != "tcp" && b.received(t, p) == 0 {
				return fmt.Errorf("sockets=%s: nothing is direct: %v, %v", p.kind, a.whys(t, streams[i]), b.whys(t, p))
			}
			return nil
		})
	}
	for range rounds {
		for _, mtu := range []string{"1500", "9000", "576", "65520", "1280", "65535"} {
			for _, n := range []*node{a, b} {
				n.ip(t, "link", "set", "exn0", "mtu", mtu)
			}
			all("MTU " + mtu)
		}
		for _, n := range []*node{a, b} {
			n.ip(t, "link", "set", "exn0", "down")
			time.Sleep(20 * time.Millisecond)
			n.ip(t, "link", "set", "exn0", "up")
			all("down and up of " + n.addr)
		}
	}
	for _, s := range streams {
		s.tell(t, "end")
		t.Logf("%s: %d MiB", s.kind, s.number(t, "streamed")>>20)
	}
}

// received is how many bytes a server has received direct.
func (n *node) received(t *testing.T, p *process) (bytes uint64) {
	t.Helper()
	s, err := n.sockets()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Connections {
		if c.PID == p.PID() {
			bytes += c.Received.DirectBytes
		}
	}
	return bytes
}

// Whoever deletes the interface ends its node: in order, with one clear line. Others
// carry on, and the node can be started again.
func TestRootInterfaceDeleted(t *testing.T) {
	longtest.Skip(t)
	const port = 7000
	l := newLab(t, 3)
	a, b, c := l.nodes[0], l.nodes[1], l.nodes[2]
	whole := t
	layers(t, directKinds, func(t *testing.T, kind string) {
		server := b.serve(t, kind, "echo", port)
		client := a.run(t, kind, "hold", b.addr, port, 2)
		client.expect(t, "held")
		a.wantDirect(t, client, 2)
		other := c.run(t, kind, "hold", b.addr, port, 2)
		other.expect(t, "held")

		a.ip(t, "link", "del", "exn0")
		select {
		case <-a.Done:
		case <-time.After(hangTime):
			t.Fatalf("the node does not end\n%s", a.text())
		}
		lines := strings.Split(strings.TrimSpace(a.text()), "\n")
		last := lines[len(lines)-1]
		t.Logf("%v: %s", a.Err, last)
		if a.Err == nil || a.Err.Error() != "exit status 1" || !strings.Contains(last, "interface was removed") || strings.Contains(a.text(), "panic") {
			t.Errorf("%v\n%s", a.Err, a.text())
		}
		// Direct connections need neither.
		client.round(t)
		other.round(t)
		client.tell(t, "end")
		client.expect(t, "closed")
		client.end(t)
		a.start(whole, "--node", "1")
		a.wait(t)
		again := a.run(t, kind, "hold", b.addr, port, 2)
		again.expect(t, "held")
		a.wantDirect(t, again, 2)
		other.round(t)
		for _, p := range []*process{again, other, server} {
			p.end(t)
		}
	})
}
