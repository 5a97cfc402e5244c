package broker

import (
	"net/netip"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// The last Rule that fits counts. A Rule about everything replaces all, and one about the same as
// another replaces that.
func TestSwitch(t *testing.T) {
	web := switchEnd{names: []string{"0123456789abcdef", "web", "shop/web-1/main"}, server: netip.MustParseAddrPort("10.2.0.1:80"), pid: 7}
	other := switchEnd{server: netip.MustParseAddrPort("[fd00::1]:6379"), pid: 8}
	to := netip.MustParsePrefix("10.2.0.0/24")
	low, high := uint32(9), uint32(10) // 9 and 10 of a hundred
	for _, c := range []struct {
		name       string
		rules      []Rule
		web, other bool
	}{
		{"nothing was said", nil, true, true},
		{"off", []Rule{{}}, false, false},
		{"off and on", []Rule{{}, {Direct: true}}, true, true},
		{"all but one", []Rule{{}, {Direct: true, Port: 80}}, true, false},
		{"the last one counts", []Rule{{Port: 80}, {Direct: true, To: to}}, true, true},
		{"a name", []Rule{{Container: "web"}}, false, true},
		{"an ID", []Rule{{Container: "0123456789ab"}}, false, true},
		{"too short for an ID", []Rule{{Container: "0123"}}, true, true},
		{"another container of the pod", []Rule{{Container: "shop/web-1/side"}}, false, true},
		{"the pod", []Rule{{Container: "shop/web-1/"}}, false, true},
		{"its sandbox", []Rule{{Container: "shop/web-1"}}, false, true},
		{"another pod", []Rule{{Container: "shop/web/main"}, {Container: "shop/web-10/main"}}, true, true},
		{"a process", []Rule{{PID: 8}}, true, false},
		{"each field has to fit", []Rule{{PID: 8, Port: 80}}, true, true},
		{"a network", []Rule{{To: to}}, false, true},
		{"on replaces off", []Rule{{Port: 80}, {Direct: true, Port: 80}}, true, true},
	} {
		var s Switch
		for _, r := range c.rules {
			if !s.Add(r) {
				t.Fatal("no room")
			}
		}
		if web, other := s.allows(web, low), s.allows(other, low); web != c.web || other != c.other {
			t.Errorf("%s: %v, %v", c.name, web, other)
		}
	}
	var s Switch
	s.Add(Rule{Port: 80})
	for _, share := range []int{90, 10} { // a Share replaces a Share, and not the Rule below it
		s.Add(Rule{Direct: true, Port: 80, Share: share})
	}
	rules, _ := s.Rules()
	if n := len(rules); n != 2 || !s.allows(web, low) || s.allows(web, high) || !s.allows(other, high) {
		t.Errorf("a share of 10, in %d rules: %v, %v, %v", n, s.allows(web, low), s.allows(web, high), s.allows(other, high))
	}
	s.Add(Rule{Direct: true})
	if rules, _ := s.Rules(); len(rules) > 0 {
		t.Error("on has not replaced all")
	}
	for n := range maxRules {
		s.Add(Rule{PID: n + 1})
	}
	if s.Add(Rule{PID: maxRules + 1}) || !s.Add(Rule{PID: 1, Direct: true}) || !(*Switch)(nil).allows(web, low) {
		t.Error("the limit, or no Switch")
	}
}

// What is held stays on TCP, whatever the Rules say, until it is released. Then they count again.
func TestSwitchHold(t *testing.T) {
	web := switchEnd{server: netip.MustParseAddrPort("10.2.0.1:80")}
	other := switchEnd{server: netip.MustParseAddrPort("10.2.0.1:81")}
	var s Switch
	s.Add(Rule{Port: 81})
	first, _ := s.Hold(Rule{Port: 80, Direct: true})
	second, _ := s.Hold(Rule{Port: 80})
	s.Add(Rule{Direct: true, Port: 80})
	check := func(web1, other1 bool, held int) {
		t.Helper()
		_, all := s.Rules()
		if w, o, n := s.allows(web, 0), s.allows(other, 0), len(all); w != web1 || o != other1 || n != held {
			t.Errorf("%v, %v, %d are held; want %v, %v, %d", w, o, n, web1, other1, held)
		}
	}
	check(false, false, 2)
	first()
	check(false, false, 1)
	s.Add(Rule{Direct: true}) // replaces all Rules, and nothing that is held
	check(false, true, 1)
	second()
	second()
	check(true, true, 0)
	for range maxHeld {
		s.Hold(Rule{})
	}
	if _, ok := s.Hold(Rule{}); ok {
		t.Error("there is no limit")
	}
}

// Set replaces the Rules of a container, or all; too many change nothing. The Rule that decides
// about a connection is told.
func TestSwitchSet(t *testing.T) {
	e := switchEnd{names: []string{"web"}, server: netip.MustParseAddrPort("10.2.0.1:80"), pid: 7}
	var s Switch
	by := func(want string) {
		t.Helper()
		got := ""
		if r := s.decidingRule(e, 0); r != nil {
			got = r.String()
		}
		if got != want {
			t.Errorf("decided by %q, want %q", got, want)
		}
	}
	by("")
	s.Set("", []Rule{{Port: 80}, {Container: "other"}})
	by("off --port 80")
	s.Set("web", []Rule{{Container: "web", PID: 7, Direct: true, Share: 10}})
	by("on --container web --pid 7 --share 10")
	if s.Set("web", make([]Rule, maxRules)) || s.Set("", make([]Rule, maxRules+1)) {
		t.Error("there is no limit")
	}
	s.Set("web", nil)
	by("off --port 80")
	s.Set("", []Rule{{To: netip.MustParsePrefix("10.2.0.0/16")}})
	by("off --to 10.2.0.0/16")
	s.Hold(Rule{PID: 7})
	by("off --pid 7")
}

// A Rule about a server's place is about both flows of datagrams between it and a client, but not
// about a connection from there.
func TestSwitchFlows(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.2.0.2:40000"), netip.MustParseAddrPort("10.2.0.1:53")
	for _, r := range []Rule{{Port: 53}, {To: netip.PrefixFrom(server.Addr(), 32)}, {Port: 53, To: netip.PrefixFrom(server.Addr(), 24)}} {
		var s Switch
		s.Add(r)
		for _, c := range []struct {
			connstats.Connection
			off bool
		}{
			{connstats.Connection{UDP: true, Local: client, Remote: server}, true},
			{connstats.Connection{UDP: true, Local: client, Remote: server, Server: true}, true},
			{connstats.Connection{UDP: true, Local: server, Remote: client}, true},
			{connstats.Connection{UDP: true, Local: server, Remote: client, Server: true}, true},
			{connstats.Connection{Local: client, Remote: server}, true},
			{connstats.Connection{Local: server, Remote: client}, r.Port == 0 && r.To.Contains(client.Addr())},
		} {
			if s.allows(endOf(nil, &c.Connection, 0), 0) == c.off || r.Fits(nil, &c.Connection) != c.off {
				t.Errorf("rule %v, %+v: off is not %v", r, c.Connection, c.off)
			}
		}
	}
	var s Server
	s.cfg.Switch = new(Switch)
	s.cfg.Switch.Add(Rule{Port: 53})
	back := wire.Key{Client: server, Server: client}
	if from := new(session); s.mayOffer(&offer{key: back, from: from, flow: new(flowEnds)}) || !s.mayOffer(&offer{key: back, from: from}) {
		t.Error("an offer of a flow back")
	}
}

// The Rules of a container count where none of the Switch fits, and are told as its own.
func TestSwitchOwn(t *testing.T) {
	c := connstats.Connection{Server: true, Local: netip.MustParseAddrPort("10.2.0.1:80"), Remote: netip.MustParseAddrPort("10.2.0.2:4000")}
	var s Server
	check := func(want string, allowed bool) {
		t.Helper()
		if got, is := s.decidedBy(&c), s.mayBeDirect(endOf(nil, &c, 0), 0); got != want || is != allowed {
			t.Errorf("%q, %v; want %q, %v", got, is, want, allowed)
		}
	}
	check("", true)
	s.SetRules([]Rule{{Port: 80}})
	check("off --port 80 # of the pod", false)
	s.cfg.Switch = new(Switch)
	s.cfg.Switch.Add(Rule{Port: 81})
	check("off --port 80 # of the pod", false)
	s.cfg.Switch.Add(Rule{Port: 80, Direct: true})
	check("on --port 80", true)
	s.cfg.Switch.Add(Rule{Direct: true}) // forgets the Switch's, not the container's
	check("off --port 80 # of the pod", false)
	if s.SetRules(make([]Rule, maxRules+1)) {
		t.Error("there is no limit")
	}
}

// allows reports whether a connection may be direct by the Switch alone.
func (s *Switch) allows(e switchEnd, draw uint32) bool {
	r := s.decidingRule(e, draw)
	return r == nil || r.Direct
}

// A connection of an old library, which looks at no Switch, stays direct and is counted once,
// whichever of its ends the Rule is about.
func TestSwitchKept(t *testing.T) {
	const heeds = 256 + 15 // of the first entry (SPEC.md, 6.3)
	key := wire.Key{Client: netip.MustParseAddrPort("10.2.0.2:40000"), Server: netip.MustParseAddrPort("10.2.0.1:80")}
	table := func(server bool) clientTable {
		all, err := connstats.New(1, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all.Close)
		e := all.Alloc(connstats.EntryInfo{Key: key, Server: server})
		e.Set(connstats.ModeDirect, connstats.WhyNothing)
		if _, err := unix.Pwrite(all.Fd(), []byte{0}, heeds); err != nil {
			t.Fatal(err)
		}
		return clientTable{fd: all.Fd()}
	}
	for container, want := range map[string]int{"": 1, "web": 1, "other": 0} {
		var sw Switch
		sw.Add(Rule{Container: container})
		r := newReturning()
		for name, of := range map[string]clientTable{"client": table(false), "web": table(true)} {
			budget := 64
			s := &Server{cfg: Config{Names: []string{name}, Switch: &sw}}
			s.switchTable(of, &budget, r)
		}
		if got := r.sumUp(); got != (Returned{Kept: want}) {
			t.Errorf("off for %q: %+v, want %d that stay", container, got, want)
		}
	}
}
