package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
)

// Nodes join through any member, all find all, groups are told, one leaves, one is lost
// and comes back.
func TestMembers(t *testing.T) {
	for _, encrypted := range []bool{true, false} {
		t.Run(fmt.Sprintf("encrypted=%v", encrypted), func(t *testing.T) {
			ca := newAuthority(t, "lab")
			begin := func(n fabric.NodeID, join ...*member) *member {
				var store *identity.Store
				if encrypted {
					store, _ = ca.store(n)
				}
				m := open(t, store, selfOf(n), func(c *Config) { c.Conns = int(n%2) + 1 }, join...)
				if err := m.Ask(t.Context()); err != nil {
					t.Error(err)
				}
				return m.run()
			}
			two := begin(2)
			one := begin(1, two)
			three := begin(3, one)
			four := begin(4, three, two)
			one.awaits(2, 3, 4)
			two.awaits(1, 3, 4)
			three.awaits(1, 2, 4)
			four.awaits(1, 2, 3)
			for _, p := range one.Peers() {
				if (p.Key != "") != encrypted || !p.Endpoint.IsValid() {
					t.Errorf("%+v", p)
				}
			}
			group := netip.MustParseAddr("239.1.1.1")
			one.JoinGroup(group)
			three.JoinGroup(group)
			eventually(t, "group", func() bool { return slices.Equal(sorted(two.Groups()[group]), []fabric.NodeID{1, 3}) })
			three.LeaveGroup(group)
			eventually(t, "group left", func() bool { return slices.Equal(two.Groups()[group], []fabric.NodeID{1}) })

			// What is cut comes back.
			two.mu.Lock()
			s := two.sessions[1]
			two.mu.Unlock()
			s.end(errors.New("cut"))
			<-s.gone
			two.awaits(1, 3, 4)
			one.awaits(2, 3, 4)
			eventually(t, "group again", func() bool { return slices.Equal(two.Groups()[group], []fabric.NodeID{1}) })

			four.stop()
			one.awaits(2, 3)
			if peers := one.Peers(); len(peers) != 2 {
				t.Errorf("node 4 has left: %+v", peers)
			}
			eventually(t, "node 4 has left", func() bool { return one.logged("left") })
			one.stop()
			three.awaits(2)
		})
	}
}

func sorted(n []fabric.NodeID) []fabric.NodeID {
	slices.Sort(n)
	return n
}

// A node has another one answer, which is asked one thing at a time; who is lost before it
// answers, or is not there, is down.
func TestRequest(t *testing.T) {
	ca := newAuthority(t, "lab")
	begin := func(n fabric.NodeID, answer func(fabric.NodeID, []byte) []byte, join ...*member) *member {
		store, _ := ca.store(n)
		return open(t, store, selfOf(n), func(c *Config) { c.OnRequest = answer }, join...).run()
	}
	var two *member
	var at atomic.Int32
	wait := make(chan struct{})
	one := begin(1, func(from fabric.NodeID, text []byte) []byte {
		if at.Add(1) != 1 {
			t.Error("two requests at a time")
		}
		defer at.Add(-1)
		switch string(text) {
		case `"end"`:
			two.mu.Lock()
			defer two.mu.Unlock()
			two.sessions[1].end(errors.New("cut"))
		case `"long"`:
			return []byte(`"` + strings.Repeat("x", maxMessage) + `"`)
		case `"wait"`:
			<-wait
		}
		return fmt.Appendf(nil, `{"from":%d,"got":%s}`, from, text)
	})
	two = begin(2, nil, one)
	two.awaits(1)
	one.awaits(2)
	var work sync.WaitGroup
	for i := range 50 {
		work.Go(func() {
			got, err := two.Request(t.Context(), 1, fmt.Append(nil, i))
			if want := fmt.Sprintf(`{"from":2,"got":%d}`, i); err != nil || string(got) != want {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
	work.Wait()
	if got, err := one.Request(t.Context(), 2, []byte("{}")); err != nil || string(got) != "null" {
		t.Errorf("who has no answer says %s, %v", got, err)
	}
	if _, err := two.Request(t.Context(), 1, []byte(`"`+strings.Repeat("x", maxMessage)+`"`)); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("a request that is too long: %v", err)
	}
	if _, err := two.Request(t.Context(), 3, []byte("1")); !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("a node that is not there: %v", err)
	}
	for _, text := range []string{`"end"`, `"long"`} {
		if got, err := two.Request(t.Context(), 1, []byte(text)); !errors.Is(err, fabric.ErrPeerDown) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
		eventually(t, "linked again", func() bool { _, err := two.Request(t.Context(), 1, []byte("1")); return err == nil })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := two.Request(ctx, 1, []byte(`"wait"`)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	close(wait)
}

// Two nodes of one host's directory are members of each other, without a link.
func TestShared(t *testing.T) {
	a, b := selfOf(1), selfOf(2)
	local := func(c *Config) { c.Local = func() []emp.Description { return []emp.Description{a, b} } }
	one := open(t, nil, a, local).run()
	two := open(t, nil, b, local, one).run()
	three := open(t, nil, selfOf(3), nil, two).run()
	three.awaits(1, 2)
	one.awaits(3)
	two.awaits(3)
	if n := len(one.Peers()); n != 1 {
		t.Errorf("%d peers", n)
	}
}

// Whoever cannot be a member is told why, in one line, before it begins.
func TestAskRefused(t *testing.T) {
	ca, other, den := newAuthority(t, "lab"), newAuthority(t, "lab"), newAuthority(t, "den")
	storeOf := func(a *authority, n fabric.NodeID) *identity.Store {
		s, _ := a.store(n)
		return s
	}
	one := open(t, storeOf(ca, 1), selfOf(1), nil).run()
	two := open(t, storeOf(ca, 2), selfOf(2), nil, one).run()
	one.awaits(2)
	taken := selfOf(3)
	taken.Addrs = two.cfg.Self.Addrs
	mac := selfOf(3)
	mac.MAC = "2e:00:00:00:00:03"
	wired := selfOf(3)
	wired.Topology = "torus"
	for _, c := range []struct {
		name  string
		store *identity.Store
		self  emp.Description
		cfg   func(*Config)
		want  string
	}{
		{"the ID of the member", storeOf(ca, 1), selfOf(1), nil, "node ID 1: fabric: already in use"},
		{"the ID of another", storeOf(ca, 2), selfOf(2), nil, "node ID 2: fabric: already in use by a node at 127.0.0.1:"},
		{"an address", storeOf(ca, 3), taken, nil, "node 2 has 10.2.0.2, which node 3 wants"},
		{"a fabric", storeOf(ca, 3), selfOf(3), func(c *Config) { c.Fabric = "den" }, "use the same --fabric"},
		{"a MAC prefix", storeOf(ca, 3), mac, nil, "use the same MAC prefix"},
		{"a topology", storeOf(ca, 3), wired, nil, "torus"},
		{"another's certificate", storeOf(ca, 4), selfOf(3), nil, "its certificate is for node 4"},
		{"no address", storeOf(ca, 3), selfOf(3), func(c *Config) { c.Join = []string{"nowhere.invalid:1"} }, "nowhere.invalid"},
	} {
		m := open(t, c.store, c.self, c.cfg, one)
		err := m.Ask(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	// The node whose ID another one wants is told, too.
	eventually(t, "two is told", func() bool { return two.logged("another node has this node's ID") })
	// Nothing that is final: it may be a matter of starting order, or of a trust file.
	for _, c := range []struct {
		name  string
		store *identity.Store
		want  string
	}{
		{"a stranger", storeOf(other, 3), "not trusted"},
		{"plain to encrypted", nil, "--plaintext"},
		{"a stranger of another fabric", storeOf(den, 3), "another fabric: this is fabric den"},
	} {
		m := open(t, c.store, selfOf(3), func(cfg *Config) {
			if c.store != nil {
				cfg.Fabric = c.store.Pair().Name.Fabric
			}
		}, one)
		if err := m.Ask(t.Context()); err != nil || !m.logged(c.want) {
			t.Errorf("%s: %v, %s", c.name, err, m.log.String())
		}
	}
	if s := one.Stats(); s.Refused < 6 {
		t.Errorf("%+v", s)
	}
	if got := one.ups(); !slices.Equal(got, []fabric.NodeID{2}) {
		t.Errorf("linked: %v", got)
	}
}

// A node that began anew gets its ID back although its former connection, which nobody has
// ended, looks alive.
func TestBeganAnew(t *testing.T) {
	one := open(t, nil, selfOf(1), nil).run()
	eventually(t, "running", one.isRunning)
	conn, err := net.Dial("tcp", one.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var reply hello
	if err := sendMessage(conn, hello{Kind: kindControl, Fabric: "lab", Self: selfOf(2), Clock: time.Now().UnixNano()}); err != nil {
		t.Fatal(err)
	}
	if err := receiveMessage(conn, maxHello, &reply); err != nil || reply.Refused != "" || reply.Cookie == "" {
		t.Fatalf("%+v, %v", reply, err)
	}
	two := open(t, nil, selfOf(2), nil, one)
	if err := two.Ask(t.Context()); err != nil {
		t.Error(err)
	}
	two.run()
	one.awaits(2)
}

// Whom a node does not trust any more is parted with.
func TestDenied(t *testing.T) {
	ca := newAuthority(t, "lab")
	store, trust := ca.store(1)
	other, _ := ca.store(2)
	one, two := linked(t, store, other)
	line := string(identity.PEM(ca.pair.Cert)) + "deny " + other.Pair().Fingerprint() + "\n"
	if err := os.WriteFile(trust, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	one.awaits()
	eventually(t, "refused", func() bool { return two.logged("does not trust this node's key") && one.logged("is denied") })
}

// Whose certificate ends while it is linked is parted with, and is not let in with that again.
func TestExpiredWhileLinked(t *testing.T) {
	ca := newAuthority(t, "lab")
	late := new(atomic.Int64)
	store, _ := ca.storeOf(1, year, func() time.Time { return time.Now().Add(time.Duration(late.Load())) })
	other, _ := ca.storeOf(2, year/4, nil)
	one, two := linked(t, store, other)
	late.Store(int64(year / 2))
	one.awaits()
	eventually(t, "refused", func() bool {
		return one.logged("msg=refused") && one.logged("ended at") && two.logged("does not trust this node's key")
	})
	late.Store(0)
	one.awaits(2)
}

// A certificate that is renewed in time ends no link: the peers are shown it.
func TestRenewed(t *testing.T) {
	ca := newAuthority(t, "lab")
	late := new(atomic.Int64)
	store, _ := ca.storeOf(1, year, func() time.Time { return time.Now().Add(time.Duration(late.Load())) })
	other, trust := ca.storeOf(2, year/2, nil)
	one, two := linked(t, store, other)
	one.mu.Lock()
	s := one.sessions[2]
	one.mu.Unlock()
	old := s.cert.Load()
	later, err := identity.Sign(ca.pair, old, 2*year)
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.Replace(filepath.Join(filepath.Dir(trust), "node.crt"), later); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shown", func() bool { return s.cert.Load().Equal(later) && one.logged("certificate renewed") })
	var generation uint64
	late.Store(int64(time.Until(old.NotAfter) + time.Hour))
	if err := s.checkBelieved(&generation); err != nil {
		t.Errorf("when the old one has ended: %v", err)
	}
	late.Store(0)
	// A stranger's is not taken, which ends nothing either.
	two.mu.Lock()
	back := two.sessions[1]
	two.mu.Unlock()
	back.queueNews(news{Cert: []byte("nonsense")})
	eventually(t, "told", func() bool { return one.logged("is not believed") })
	if n, m := one.Stats().Sessions, two.Stats().Sessions; n != 1 || m != 1 || !s.cert.Load().Equal(later) {
		t.Errorf("%d and %d sessions", n, m)
	}
}

// counted counts what a stranger is sent.
type counted struct {
	net.Conn
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += n
	return n, err
}

// Strangers get nothing and take nothing: no key, another key, half a handshake, noise, too many
// at a time.
func TestStrangers(t *testing.T) {
	ca := newAuthority(t, "lab")
	store, _ := ca.store(1)
	one := open(t, store, selfOf(1), nil).run()
	dial := func() *counted {
		c, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(hang))
		return &counted{Conn: c}
	}
	// Without a key the handshake ends with an alert, and no message is read.
	c := dial()
	naked := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"exnet"}})
	_ = sendMessage(naked, hello{Kind: kindControl, Fabric: "lab", Self: selfOf(2)})
	var reply hello
	if err := receiveMessage(naked, maxHello, &reply); err == nil || reply.Cookie != "" {
		t.Errorf("without a key: %+v", reply)
	}
	naked.Close()
	// Noise: the node hangs up, whatever is still to come.
	c = dial()
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * 131)
	}
	_, _ = c.Write(noise)
	_, _ = io.Copy(io.Discard, c)
	if c.n > 64 {
		t.Errorf("noise got %d bytes", c.n)
	}
	c.Close()
	eventually(t, "refused", func() bool { return one.Stats().Refused >= 2 })

	// A flood of connections that say nothing.
	before := one.Stats()
	var flood []net.Conn
	for range 4 * maxPerSource {
		c, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, c)
	}
	eventually(t, "flood", func() bool { return one.Stats().Accepted-before.Accepted == 4*maxPerSource })
	if n := one.Stats().Dropped - before.Dropped; n < 3*maxPerSource {
		t.Errorf("%d of %d were turned away", n, 4*maxPerSource)
	}
	one.mu.Lock()
	if one.gate.total > maxPerSource {
		t.Errorf("%d half open", one.gate.total)
	}
	one.mu.Unlock()
	for _, c := range flood {
		c.Close()
	}
	// A member gets in as soon as there is a place.
	other, _ := ca.store(2)
	two := open(t, other, selfOf(2), nil, one).run()
	two.awaits(1)
	if s := one.Stats(); s.Sessions == 0 {
		t.Errorf("%+v", s)
	}
}

// Another version is told so in one line, whatever else it sends.
func TestVersion(t *testing.T) {
	one := open(t, nil, selfOf(1), nil).run()
	c, err := net.Dial("tcp", one.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hang))
	b, err := appendMessage(nil, "what only version 2 knows")
	if err != nil {
		t.Fatal(err)
	}
	b[versionOff+1] = 2
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	var reply hello
	if err := receiveMessage(c, maxHello, &reply); err != nil || !strings.Contains(reply.Refused, "is 2, here it is 1") || reply.Self.Node != 0 {
		t.Errorf("%+v, %v", reply, err)
	}
	eventually(t, "logged", func() bool { return one.logged("another version of exnet") })
}

// Clocks that differ are reported, once.
func TestClocks(t *testing.T) {
	one := open(t, nil, selfOf(1), nil)
	for range 2 {
		if err := one.judgeHello(hello{Fabric: "lab", Self: selfOf(2), Clock: time.Now().Add(-time.Hour).UnixNano()}, nil); err != nil {
			t.Error(err)
		}
	}
	if text := one.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the clock of node 2 is 1h0m0s behind") {
		t.Error(text)
	}
}

func TestCheckAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"host": "host:4791", "host:1": "host:1", "192.0.2.1": "192.0.2.1:4791", "fd00::1": "[fd00::1]:4791",
		"[fd00::1]": "[fd00::1]:4791", "[fd00::1]:7": "[fd00::1]:7", "": "", ":1": "", "host:0": "", "host:65536": "", "host:x": "",
		"a:b:c": "", "[a:b]:7": "", "fe80::1%eth0": "[fe80::1%eth0]:4791",
	} {
		if got, err := CheckJoin(in); got != want || (err == nil) != (want != "") {
			t.Errorf("join %q: %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := CheckListen(":1"); got != ":1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// What a node has answered is not replaced by silence at another address of it.
func TestFailures(t *testing.T) {
	here, there := netip.MustParseAddrPort("192.0.2.1:4791"), netip.MustParseAddrPort("198.51.100.1:4791")
	answer, silent := errors.New("certificate has ended"), error(&silence{errors.New("no route")})
	for _, tt := range []struct {
		last, err error
		at        netip.AddrPort
		want      bool
	}{
		{nil, silent, here, true},
		{nil, answer, here, true},
		{errors.New("link is down"), silent, here, true},
		{&failure{answer, here}, silent, there, false},
		{&failure{answer, here}, silent, here, true},
		{&failure{answer, here}, answer, there, true},
		{&failure{silent, here}, silent, there, true},
		{&failure{silent, here}, answer, there, true},
	} {
		if got := saysMore(tt.last, tt.err, tt.at); got != tt.want {
			t.Errorf("%v after %v: %v", tt.err, tt.last, got)
		}
	}
}

// Control is asked for the listener and for each connection that is dialed, and its error is
// the one that is told.
func TestControl(t *testing.T) {
	var asked atomic.Int32
	control := func(_, _ string, _ syscall.RawConn) error { asked.Add(1); return nil }
	one := open(t, nil, selfOf(1), nil).run()
	two := open(t, nil, selfOf(2), func(c *Config) { c.Control = control }, one).run()
	two.awaits(1)
	if n := asked.Load(); n < 3 { // the listener, the control and the data connection
		t.Errorf("asked %d times", n)
	}
	no := errors.New("no such algorithm")
	_, err := Open(Config{Listen: "127.0.0.1:0", Fabric: "lab", Self: selfOf(3), Control: func(_, _ string, _ syscall.RawConn) error { return no }})
	if !errors.Is(err, no) || err.Error() != no.Error() {
		t.Errorf("got %v, want %v", err, no)
	}
}
