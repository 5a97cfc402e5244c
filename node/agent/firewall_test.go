package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// cutTime is how long after the network is cut a connection of few is direct at the most: four
// looks, and what a busy machine takes. The test logs what it was.
const cutTime = timeLimit

// languages are those of a client and a server.
var languages = []struct{ client, server language }{{inGo, inGo}, {inC, inC}, {inGo, inC}, {inC, inGo}}

// A network that is cut, in whatever way, takes a direct connection back to TCP, which then does
// what it would have done; if the network comes back, the connection goes on without loss.
func TestRootNetworkCut(t *testing.T) {
	drop := func(l *lab) {
		l.nft(l.router, "add table bridge f", "add chain bridge f x { type filter hook forward priority 0 ; }", "add rule bridge f x meta protocol ip drop")
	}
	undrop := func(l *lab) { l.nft(l.router, "delete table bridge f") }
	for i, tt := range []struct {
		name         string
		cut, restore func(l *lab)
	}{
		{"established packets are dropped", drop, undrop},
		{"one way is dropped", func(l *lab) {
			l.nft(l.b, "add table ip f", "add chain ip f in { type filter hook input priority 0 ; }", "add rule ip f in drop")
		}, func(l *lab) { l.nft(l.b, "delete table ip f") }},
		{"the client's interface is down", func(l *lab) { command(l.t, l.a, "ip link set eth0 down") },
			func(l *lab) { command(l.t, l.a, "ip link set eth0 up") }},
		{"the bridge's port is down", func(l *lab) { command(l.t, l.router, "ip link set v1 down") },
			func(l *lab) { command(l.t, l.router, "ip link set v1 up") }},
	} {
		for k, in := range languages {
			if i > 0 && k != i { // all languages once
				continue
			}
			t.Run(fmt.Sprintf("%s, %v to %v", tt.name, in.client, in.server), func(t *testing.T) {
				if i+k > 0 {
					longtest.Skip(t)
				}
				t.Parallel()
				l := newLab(t)
				l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
				c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
				l.becomesDirect(l.a, c)
				tt.cut(l)
				begin := time.Now()
				l.within(cutTime, "the connection is on TCP", func() bool {
					c.do("ask 1 0.05")
					x := l.last(l.a)
					return x != nil && x.Reason == connstats.WhyNetwork.String()
				})
				t.Logf("back on TCP %v after the cut", time.Since(begin).Round(10*time.Millisecond))
				before := l.last(l.a)
				if got := c.do("ask 1 0.5"); got != "timeout" {
					t.Error("through a network that is cut: ", got)
				}
				tt.restore(l)
				l.within(timeLimit, "the connection goes on", func() bool { return c.do("ask 1 1") == "ok" })
				if got := c.do("ask 100 60"); got != "ok" {
					t.Error("afterwards: ", got)
				}
				if after := l.last(l.a); after.Mode != connstats.ModeDemoted.String() || after.Sent.DirectBytes != before.Sent.DirectBytes || after.Sent.ShadowBytes <= before.Sent.ShadowBytes {
					t.Errorf("it is direct again: %+v", after)
				}
				l.becomesDirect(l.a, c) // another one
			})
		}
	}
}

// A short outage leaves a direct connection as it is, and so does a network that only answers late.
func TestRootShortOutage(t *testing.T) {
	l := newLab(t)
	l.chat(l.b, inC, "server", "172.30.0.3", 8080)
	c := l.chat(l.a, inGo, "client", "172.30.0.3", 8080)
	l.becomesDirect(l.a, c)
	before := l.last(l.a)
	command(t, l.router, "ip link set v1 down")
	if got := c.do("ask 10 60"); got != "ok" {
		t.Error("meanwhile: ", got)
	}
	command(t, l.router, "ip link set v1 up")
	if got := c.do("ask 10 60"); got != "ok" {
		t.Error("afterwards: ", got)
	}
	if after := l.last(l.a); !after.Since.Equal(before.Since) || after.Mode != before.Mode && after.Reason != connstats.WhyNetwork.String() {
		t.Errorf("status: %+v", after)
	}
}

// A reset in the middle of the network, and a conntrack flush under a policy that drops what has no
// state, end it as they end TCP.
func TestRootFirewallEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(l *lab)
		want string
	}{
		{"reject with a reset", func(l *lab) {
			l.nft(l.b, "add table ip f", "add chain ip f in { type filter hook input priority 0 ; }", "add rule ip f in meta l4proto tcp reject with tcp reset")
		}, "end"},
		{"the client's socket is ended", func(l *lab) { command(l.t, l.a, "ss -K dst 172.30.0.3") }, "end"},
		{"the server's socket is ended", func(l *lab) { command(l.t, l.b, "ss -K dst 172.30.0.2") }, "end"},
		{"flush", func(l *lab) {
			l.nft(l.b, "add table ip g", "add chain ip g in { type filter hook input priority 0 ; policy drop ; }",
				"add rule ip g in ct state established accept")
			netnstest.SetSysctl(l.t, l.b, "netfilter/nf_conntrack_tcp_loose", "0")
			l.nft(l.b, "add table ip h", "add chain ip h pre { type filter hook prerouting priority -300 ; }", "add rule ip h pre notrack") // what a flush does to what comes
		}, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "timeout" {
				longtest.Skip(t)
			}
			for _, in := range languages[:2] {
				t.Run(fmt.Sprint(in.client), func(t *testing.T) {
					l := newLab(t)
					l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
					c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
					l.becomesDirect(l.a, c)
					tt.cut(l)
					l.within(cutTime, "it has ended", func() bool { return strings.HasPrefix(c.do("ask 1 0.2"), tt.want) })
				})
			}
		})
	}
}

// Who waits in a read hears of a reset, as on TCP.
func TestRootResetWakes(t *testing.T) {
	for _, in := range languages[:3] {
		t.Run(fmt.Sprintf("%v to %v", in.client, in.server), func(t *testing.T) {
			l := newLab(t)
			l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
			c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
			l.becomesDirect(l.a, c)
			said := make(chan string, 1)
			go func() { said <- c.do("wait %d", int(timeLimit.Seconds())) }()
			time.Sleep(300 * time.Millisecond) // it may not read yet: then it hears when it does
			command(t, l.a, "ss -K dst 172.30.0.3")
			if got := <-said; !strings.HasPrefix(got, "end") {
				t.Error("a reader: ", got)
			}
		})
	}
}
