package pressure

import (
	"fmt"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// settle waits until a process has no more than it had, of descriptors and segments.
func (p *process) settle(t *testing.T, was usage) {
	t.Helper()
	eventually(t, func() error {
		if now := p.usage(t); now.fds > was.fds || now.segments > was.segments {
			return fmt.Errorf("%s had %v, and has %v", p.Name, was, now)
		}
		return nil
	})
}

// Idle connections cost memory and descriptors, and nothing else; they work afterwards,
// and all is given back.
func TestRootIdleConnections(t *testing.T) {
	longtest.Skip(t)
	// Several processes, as a descriptor limit of 20,000 needs: Go's take three each.
	const port = 7000
	processes, each := size(1, 4), size(1000, 2500)
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	layers(t, allKinds, func(t *testing.T, kind string) {
		var clients, servers []*process
		var before []usage
		daemons := []usage{a.usage(t), b.usage(t)}
		for i := range processes {
			s := b.serve(t, kind, "echo", port+i)
			c := a.run(t, kind, "hold", b.addr, port+i, 1)
			c.expect(t, "held")
			servers, clients = append(servers, s), append(clients, c)
			before = append(before, s.usage(t), c.usage(t))
		}
		start := time.Now()
		for _, c := range clients {
			c.tell(t, "add %d", each-1)
		}
		for _, c := range clients {
			c.expect(t, fmt.Sprintf("added %d all", each-1))
		}
		for _, c := range clients {
			c.tell(t, "round")
		}
		for _, c := range clients {
			c.expect(t, "round")
		}
		made := time.Since(start)
		direct := 0
		for i, c := range clients {
			// An offer expires if the server does not move bytes for 10 s, as it may not on a busy
			// machine; then the connection stays TCP, and says that it was offered.
			a.wantDirect(t, c, each-each/10)
			direct += a.direct(t, c)
			b.wantSome(t, servers[i])
		}
		var rss, fds [2]int
		for i := range processes {
			for side, p := range []*process{servers[i], clients[i]} {
				now, was := p.usage(t), before[2*i+side]
				rss[side] += now.pss - was.pss
				fds[side] += now.fds - was.fds
			}
		}
		n := processes * each
		t.Logf("%d connections, %d direct, made in %v (%.0f µs each); server: %.1f KiB, %.2f descriptors each; client: %.1f KiB, %.2f descriptors each",
			n, direct, made.Round(time.Millisecond), float64(made.Microseconds())/float64(n),
			float64(rss[0])/float64(n), float64(fds[0])/float64(n), float64(rss[1])/float64(n), float64(fds[1])/float64(n))
		for _, c := range clients {
			c.round(t)
			c.tell(t, "close")
			c.expect(t, "closed")
		}
		for i := range processes {
			servers[i].settle(t, before[2*i])
			clients[i].settle(t, before[2*i+1])
		}
		for i := range processes {
			clients[i].tell(t, "end")
			clients[i].expect(t, "closed")
			clients[i].end(t)
			servers[i].end(t)
		}
		for i, d := range []*node{a, b} {
			d.settle(t, daemons[i])
		}
	})
}

// Connections that come and go leave nothing: no descriptors, memory, segments, ports
// and nothing in the broker.
func TestRootChurn(t *testing.T) {
	longtest.Skip(t)
	const port, parallel = 7000, 2
	total := size(2000, 100_000)
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	for _, n := range l.nodes {
		// Or ports in TIME_WAIT are used up: 64 K of them for a minute.
		netnstest.SetSysctl(t, n.ns, "ipv4/tcp_tw_reuse", "1")
		netnstest.SetSysctl(t, n.ns, "ipv4/ip_local_port_range", "1024 65535")
	}
	layers(t, allKinds, func(t *testing.T, kind string) {
		server := b.serve(t, kind, "echo", port)
		run := func(n int) (time.Duration, int) {
			start := time.Now()
			var clients []*process
			for range parallel {
				clients = append(clients, a.run(t, kind, "churn", b.addr, port, n/parallel))
			}
			most := 0
			for _, c := range clients {
				c.expectIn(t, "churned", 30*time.Minute)
				u := c.usage(t)
				most = max(most, u.rss)
				if u.segments > 0 {
					t.Errorf("a client has %d segments left: %v", u.segments, u)
				}
				c.tell(t, "end")
				c.end(t)
			}
			return time.Since(start), most
		}
		// What the first ones need stays: stacks, tables, arenas.
		run(total / 5)
		eventually(t, func() error {
			if n := server.usage(t).segments; n > 0 {
				return fmt.Errorf("the server has %d segments left", n)
			}
			return nil
		})
		before := []usage{server.usage(t), a.usage(t), b.usage(t)}
		took, most := run(total)
		for i, p := range []*process{server, a.process, b.process} {
			p.settle(t, before[i])
			now := p.usage(t)
			t.Logf("%s: before %v, after %v", p.Name, before[i], now)
			if grown := now.rss - before[i].rss; grown > 32<<10 {
				t.Errorf("%s has grown by %d KiB", p.Name, grown)
			}
		}
		t.Logf("%d connections in %v: %.0f in a second; a client had %d KiB", total, took.Round(time.Millisecond), float64(total)/took.Seconds(), most)
		for _, n := range l.nodes {
			s, err := n.sockets()
			if err != nil {
				t.Fatal(err)
			}
			if open := len(s.Connections); open > 0 {
				t.Errorf("%s shows %d connections", n.Name, open)
			}
		}
		server.end(t)
	})
}

// wantSome fails the test unless some connections of a server are direct.
func (n *node) wantSome(t *testing.T, p *process) {
	t.Helper()
	if p.kind != "tcp" && n.direct(t, p) == 0 {
		t.Errorf("%s: no connection is direct: %v", p.Name, n.whys(t, p))
	}
}
