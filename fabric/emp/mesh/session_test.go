package mesh

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"exnet/fabric/emp"
)

// A session that is over dials no data connections: the next one with that node waits for it.
func TestOverDialsNoMore(t *testing.T) {
	m := open(t, nil, selfOf(1), nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	here, there := net.Pipe()
	defer there.Close()
	s := m.newSession(here, hello{Self: selfOf(2)}, nil, addrPort(ln.Addr()))
	s.dialed = true
	go func() {
		if c, err := ln.Accept(); err == nil {
			defer c.Close()
			_, _ = c.Read(make([]byte, 1))
			s.end(errors.New("the peer has reconnected"))
			for b := make([]byte, 1<<10); err == nil; {
				_, err = c.Read(b)
			}
		}
	}()
	if _, err := s.makeLink(t.Context()); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it waits for an answer: %v", err)
	}
}

// A node that says that it leaves says so to those, too, that it meets afterwards.
func TestLeavesMet(t *testing.T) {
	three := open(t, nil, selfOf(3), nil).run()
	two := open(t, nil, selfOf(2), nil, three)
	two.mu.Lock()
	two.linker = newFakeLink
	two.mu.Unlock()
	two.tellLeaving()
	two.reachTarget(t.Context(), target{seed: 0})
	eventually(t, "node 3 knows that node 2 has left", func() bool { return len(three.Peers()) == 0 })
	if n := three.Stats().Lost; n != 0 {
		t.Errorf("%d sessions were lost", n)
	}
}

// An address at which another node claims the ID of one that lives does not take its place.
func TestDialedRival(t *testing.T) {
	rival := open(t, nil, selfOf(2), nil).run()
	_, port, err := net.SplitHostPort(rival.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dns := new(fakeDNS)
	one := open(t, nil, selfOf(1), func(c *Config) { c.Lookup, c.Join = dns.lookup, []string{allOf + "members.lab:" + port} }).run()
	two := open(t, nil, selfOf(2), nil, one).run()
	one.awaits(2)
	dns.set("127.0.0.1")
	one.resolveName(t.Context(), "members.lab:"+port)
	eventually(t, "the rival was dialed", func() bool { return one.logged("in use") || one.Stats().Sessions > 1 })
	if p := one.Peers(); len(p) != 1 || p[0].Token != two.cfg.Self.Token {
		t.Errorf("linked with %+v", p)
	}
}

// Another address of a node with which there is a session does not end it.
func TestOtherAddress(t *testing.T) {
	one := open(t, nil, selfOf(1), func(c *Config) { c.Listen = "0.0.0.0:0" }).run()
	_, port, err := net.SplitHostPort(one.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dns := new(fakeDNS)
	two := open(t, nil, selfOf(2), func(c *Config) {
		c.Lookup, c.Join = dns.lookup, []string{net.JoinHostPort("127.0.0.1", port), allOf + "members.lab:" + port}
	}).run()
	dns.set("127.0.0.1")
	two.awaits(1)
	dns.set("127.0.0.2")
	two.resolveName(t.Context(), "members.lab:"+port)
	eventually(t, "node 2 knows who has the address", func() bool {
		two.mu.Lock()
		defer two.mu.Unlock()
		return len(two.book.seeds) == 2 && two.book.seeds[1].state == seedMet
	})
	if n := two.Stats().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// What was heard while this side could not write was not heard in the future.
func TestHeardInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		m := &Mesh{cfg: Config{Self: emp.Description{Node: 1}}}
		s := m.newSession(here, hello{}, nil, addrPort(here.LocalAddr()))
		done := make(chan struct{})
		go func() { s.writeQueued(); close(done) }()
		for range 3 { // signs of life are taken late
			time.Sleep(Silent - time.Second)
			s.heard.Store(time.Now().UnixNano())
			var n news
			if err := receiveMessage(there, maxMessage, &n); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if heard := time.Unix(0, s.heard.Load()); heard.After(time.Now()) {
				t.Errorf("heard in %v", time.Until(heard))
			}
		}
		s.end(context.Canceled)
		<-done
		there.Close()
	})
}
