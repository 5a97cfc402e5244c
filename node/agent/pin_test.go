package agent

import (
	"os"
	"path/filepath"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns/netnstest"
)

// A connection that is made while no agent runs is direct with the next one, if what sees the
// handshakes is pinned.
func TestRootAgentPinned(t *testing.T) {
	l := newLab(t)
	l.halt()
	l.pin = filepath.Join(netnstest.BPF(t), "exnet")
	l.start()
	in := languages[0]
	l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
	c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
	l.becomesDirect(l.a, c)
	l.halt()
	if got := c.do("open"); got != "ok" {
		t.Fatal("open: ", got)
	}
	if got := c.do("ask 1 60"); got != "ok" {
		t.Fatal("ask: ", got)
	}
	l.start()
	l.within(timeLimit, "the connection is direct", func() bool {
		if got := c.do("ask 20 60"); got != "ok" {
			t.Fatal("ask: ", got)
		}
		x := l.last(l.a)
		return x != nil && x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0
	})
}

// An agent that cannot pin says so, and serves all the same.
func TestRootAgentPinsNothing(t *testing.T) {
	l := newLab(t)
	l.halt()
	l.pin = t.TempDir()
	l.start()
	if left, err := os.ReadDir(l.pin); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
