package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"exnet/fabric/emp"
)

// A member opens 64 data connections with the cookie of its session. Those that belong to the
// link are taken, the others are refused at once, and none waits or stays open.
func TestDataConnectionsAreCounted(t *testing.T) {
	one := open(t, nil, selfOf(1), nil)
	for _, tt := range []struct {
		name               string
		of, distinct, want int
	}{
		{"one place repeatedly", 4, 1, 1},
		{"all places repeatedly", 4, 4, 4},
		{"a link of one", 1, 1, 1},
	} {
		near, far := net.Pipe()
		h := hello{Kind: kindControl, Self: selfOf(2)}
		s := one.newSession(near, h, nil, one.Addr())
		s.cookie = tt.name
		one.mu.Lock()
		one.cookies[s.cookie] = s
		one.mu.Unlock()
		h.Kind, h.Cookie, h.Of = kindData, s.cookie, tt.of
		var serve []func(context.Context)
		var ends []net.Conn
		for i := range 64 {
			mine, its := net.Pipe()
			h.Index = i % tt.distinct
			f, err := one.servePart(mine, h)
			if err != nil {
				if !errors.Is(err, emp.ErrHello) {
					t.Errorf("%s: %v", tt.name, err)
				}
				mine.Close()
				its.Close()
				continue
			}
			serve, ends = append(serve, f), append(ends, its)
		}
		if len(serve) != tt.want {
			t.Errorf("%s: %d taken, want %d", tt.name, len(serve), tt.want)
		}
		for i, f := range serve {
			if i == len(serve)-1 {
				s.endParts() // one is still on its way
			}
			f(context.Background()) // it does not wait for anybody
		}
		if h.Index = tt.of - 1; s.parts.takePart(h) == nil {
			t.Errorf("%s: taken after the end", tt.name)
		}
		for _, c := range ends {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: one is open", tt.name)
			}
			c.Close()
		}
		far.Close()
		near.Close()
	}
}

// The same over TLS: a member's surplus connections have an answer that refuses them, also when
// the link is up, which stays.
func TestSurplusDataConnections(t *testing.T) {
	ca := newAuthority(t, "lab")
	store, _ := ca.store(1)
	other, _ := ca.store(2)
	one := open(t, store, selfOf(1), nil).run()
	self := selfOf(2)
	call := func(h hello) (net.Conn, hello) {
		raw, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		_ = raw.SetDeadline(time.Now().Add(hang))
		c := tls.Client(raw, other.TLS())
		h.Fabric, h.Self, h.Clock = "lab", self, time.Now().UnixNano()
		if err := sendMessage(c, h); err != nil {
			t.Fatal(err)
		}
		var reply hello
		if err := receiveMessage(c, maxHello, &reply); err != nil {
			t.Fatal(err)
		}
		return c, reply
	}
	control, reply := call(hello{Kind: kindControl})
	if reply.Cookie == "" {
		t.Fatalf("%+v", reply)
	}
	taken := 0
	data := hello{Kind: kindData, Cookie: reply.Cookie, Of: 1}
	for range 64 {
		c, reply := call(data)
		if reply.Refused != "" {
			continue
		}
		if taken++; taken == 1 {
			if _, err := c.Write([]byte{1}); err != nil { // as newFakeLink does
				t.Fatal(err)
			}
		}
	}
	if taken > 1 {
		t.Errorf("%d data connections of 1 were taken", taken)
	}
	control.Close()
	eventually(t, "no session", func() bool { return len(one.ups()) == 0 })
}
