package mesh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeDNS is what a name has; none: it is not known.
type fakeDNS struct {
	mu    sync.Mutex
	addrs []netip.Addr
}

func (d *fakeDNS) set(addrs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addrs = nil
	for _, a := range addrs {
		d.addrs = append(d.addrs, netip.MustParseAddr(a))
	}
}

func (d *fakeDNS) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if host != "members.lab" || d.addrs == nil {
		return nil, errors.New("no such host")
	}
	return d.addrs, nil
}

// A name has the addresses of all members: a node finds those that it has now, and forgets the
// others. No answer changes nothing.
func TestNames(t *testing.T) {
	one := open(t, nil, selfOf(1), nil).run()
	_, port, err := net.SplitHostPort(one.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	name := "members.lab:" + port
	at := func(host string, dns *fakeDNS) func(*Config) {
		return func(c *Config) {
			c.Listen, c.Lookup = net.JoinHostPort(host, port), dns.lookup
			if dns != nil {
				c.Join = []string{allOf + name}
			}
		}
	}
	dns := new(fakeDNS)
	two := open(t, nil, selfOf(2), at("127.0.0.2", dns))
	if err := two.Ask(t.Context()); err != nil || !two.logged(unresolved) {
		t.Errorf("the first node: %v, %s", err, two.log.String())
	}
	two.run()
	dns.set("127.0.0.1", "127.0.0.2")
	two.resolveName(t.Context(), name)
	one.awaits(2)
	two.awaits(1)
	dns.set()
	two.resolveName(t.Context(), name)
	two.mu.Lock()
	if n := len(two.named[name]); n != 2 {
		t.Errorf("without an answer it has %d addresses", n)
	}
	two.mu.Unlock()
	one.stop()
	three := open(t, nil, selfOf(3), func(c *Config) { c.Listen = net.JoinHostPort("127.0.0.3", port) }).run()
	dns.set("127.0.0.2", "127.0.0.3")
	eventually(t, "the place of the first one is free", func() bool {
		two.resolveName(t.Context(), name)
		two.mu.Lock()
		defer two.mu.Unlock()
		return two.named[name]["127.0.0.3:"+port]
	})
	three.awaits(2)
	if addrs := two.seedsNow(); len(addrs) > 3 {
		t.Errorf("it looks at %q", addrs)
	}
}

// A seed that is gone is not dialed, not even when an attempt ends that had begun before, and its
// place is another's when that has ended. One that comes back is dialed at once.
func TestBookNames(t *testing.T) {
	b, now := newTestBook(5, 1), time.Unix(1000, 0)
	b.takeDue(now)
	b.nameHas(0, false)
	if i := b.freeSeed(); i != 1 {
		t.Errorf("place %d while it is dialed", i)
	}
	b.noteDialed(now, target{seed: 0}, 3, true)
	if due := b.takeDue(now.Add(lastRetry * 2)); len(due) != 0 || b.freeSeed() != 0 {
		t.Errorf("gone: %v, place %d", due, b.freeSeed())
	}
	b.nameHas(0, true)
	b.nameHas(1, true)
	if due := b.takeDue(now); len(due) != 2 {
		t.Errorf("back, and a new one: %v", due)
	}
}

func TestCheckJoinName(t *testing.T) {
	for in, want := range map[string]string{
		"dns:members":        "dns:members:" + strconv.Itoa(DefaultPort),
		"dns:members.lab:80": "dns:members.lab:80",
		"dns:192.0.2.7":      "leave out dns:",
		"dns:[fd00::1]:4791": "leave out dns:",
		"dns:":               "use HOST",
		"members":            "members:" + strconv.Itoa(DefaultPort),
	} {
		got, err := CheckJoin(in)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s", in, got)
		}
	}
}
