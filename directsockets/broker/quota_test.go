package broker

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc/caller"
)

// member is a session of a container, or of none, that is admitted unless its owner is full.
func (s *Server) member(a caller.Account, container string) (*session, error) {
	c := &session{s: s, account: a, out: new(said), stats: -1, listeners: make(map[uint32]*listener), offers: make(map[wire.Nonce]*offer)}
	if container != "" {
		c.home = caller.Home{Container: container, Group: "0::/" + container}
	}
	return c, s.addSession(c)
}

// fill admits clients of a container until it is full.
func (s *Server) fill(a caller.Account, container string) (all []*session) {
	for {
		c, err := s.member(a, container)
		if err != nil {
			return all
		}
		all = append(all, c)
	}
}

// nothingHeld fails the test if anybody still has something.
//
// +checklocksignore: nobody else is there
func (g *Group) nothingHeld(t *testing.T, members ...*Server) {
	t.Helper()
	for _, s := range members {
		if len(s.users) != 0 {
			t.Errorf("%d owners are left", len(s.users))
		}
	}
	q := g.quotas
	if len(q.containers)+len(q.users)+len(q.outside) != 0 || q.total.held[clients].Load()+q.total.held[descriptors].Load() != 0 {
		t.Errorf("%d containers, %d users, %d outside, %d descriptors are left", len(q.containers), len(q.users), len(q.outside), q.total.held[descriptors].Load())
	}
}

// A container that has all that it may have, in all namespaces of a group, keeps no other one from
// that, which has the same user; nor does a user with many containers keep others.
func TestContainersAreApart(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	a, _ := startServer(t, Config{NoSocket: true, Group: g})
	b, _ := startServer(t, Config{NoSocket: true, Group: g, Limited: true})
	want := min(maxClients/4, descriptorLimit()/32)
	var all []*session
	defer func() {
		for _, c := range all {
			c.s.dismissSession(c)
		}
		g.nothingHeld(t, a, b)
	}()
	first := a.fill(caller.Guest, "first")
	all = append(all, first...)
	if len(first) != want {
		t.Errorf("%d clients of a container, want %d", len(first), want)
	}
	if _, err := b.member(caller.Guest, "first"); err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("in another namespace it has room: %v", err)
	}
	second := b.fill(caller.Guest, "second")
	all = append(all, second...)
	if len(second) != want {
		t.Errorf("%d clients of another container, want %d", len(second), want)
	}
	if _, err := a.member(caller.Root, "second"); err == nil {
		t.Error("root of the host's namespaces, in a container's cgroup, has no limit")
	}
	for _, none := range []caller.Account{caller.Guest, 12345} {
		c, err := a.member(none, "")
		if err != nil {
			t.Errorf("%v in no container: %v", none, err)
			continue
		}
		all = append(all, c)
	}
	for i := range 64 {
		more := a.fill(caller.Guest, strings.Repeat("x", i+1))
		if all = append(all, more...); len(more) == 0 {
			break
		}
		if i == 63 {
			t.Error("a user's containers have no limit together")
		}
	}
	other, err := b.member(4711, "another user's")
	if err != nil {
		t.Error("another user's container: ", err)
	}
	all = append(all, other)
	a.dismissSession(first[0])
	again, err := a.member(caller.Guest, "first")
	if err != nil {
		t.Error("after one has gone: ", err)
	}
	all = append(all[1:], again)
}

// A container's listeners, and the time that it has taken, leave another one's as they are.
func TestContainersListenApart(t *testing.T) {
	s, _ := startServer(t, Config{NoSocket: true})
	listen := func(container string, clients int) (refused int64) {
		for i := range clients {
			c, err := s.member(caller.Guest, container)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.dismissSession(c) })
			for id := range wire.MaxListeners {
				if err := c.addListener(uint32(id+1), bound{addr: ap("127.0.0.2:1").Addr(), port: uint16(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
			refused += c.out.(*said).refused.Load()
		}
		return refused
	}
	const may = maxListeners / 2 / wire.MaxListeners
	if n := listen("first", may+1); n != wire.MaxListeners {
		t.Errorf("%d listeners of a container are refused, want %d", n, wire.MaxListeners)
	}
	if n := listen("second", 1); n != 0 {
		t.Errorf("%d of another one", n)
	}
	a, _ := s.member(caller.Guest, "slow")
	b, _ := s.member(caller.Guest, "quick")
	defer s.dismissSession(a)
	defer s.dismissSession(b)
	at := monotonicTime()
	for range 100 {
		a.user.levels.chargeTime(at, 10*time.Millisecond)
	}
	wait, other := a.user.levels.chargeTime(at, 0), b.user.levels.chargeTime(at, 0)
	if want := time.Second - paceBurst; wait != want {
		t.Errorf("a container waits %v, want %v", wait, want)
	}
	if want := time.Second/2 - paceBurst; other != want { // its user's
		t.Errorf("another one waits %v, want %v", other, want)
	}
	for _, q := range append(a.user.levels, b.user.levels...) {
		q.pace.due.Store(0)
	}
}

// A client counts for the container in which its process was when it connected, wherever it goes.
func TestContainerMoves(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	ids := []string{strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba98", 8)}
	groups := []*os.File{netnstest.Container(t, ids[0]), netnstest.Container(t, ids[1])}
	s, _ := startServer(t, Config{})
	begin := func(group *os.File) (pid int, end func()) {
		cmd := self(roleStay, s.Path())
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		if group != nil {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
		}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Skip(err)
		}
		return cmd.Process.Pid, func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	// clientsOf are those of each container, by the beginning of its cgroup's name.
	clientsOf := func() (n [3]int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for o, u := range s.users {
			at := 2
			for i, g := range groups {
				if strings.Contains(o.home, strings.TrimSuffix(filepath.Base(g.Name()), ".scope")) {
					at = i
				}
			}
			if (at == 2) != (o == owner{}) || at < 2 && o.account != caller.Guest {
				t.Errorf("owner %+v", o)
			}
			n[at] += u.local.held[clients].Load()
		}
		return n
	}
	is := func(what string, want [3]int64) {
		t.Helper()
		brokertest.Eventually(t, what, func() bool { return clientsOf() == want })
	}
	pid, end := begin(groups[0])
	is("one is in a container", [3]int64{1, 0, 0})
	netnstest.Enter(t, groups[1], pid)
	_, second := begin(groups[1])
	is("it counts there after it has moved", [3]int64{1, 1, 0})
	_, third := begin(nil)
	is("one is in none", [3]int64{1, 1, 1})
	end()
	is("it has left", [3]int64{0, 1, 1})
	second()
	third()
	is("all have left", [3]int64{})
}

// TestListenersPay has a port get its first listener and lose its last one, which all members'
// pages then show: whoever announces it is charged for all of them, and for no other one.
func TestListenersPay(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	s, _ := startServer(t, Config{NoSocket: true, Group: g})
	c, err := s.member(caller.Guest, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer s.dismissSession(c)
	charged := func(what string, atLeast, below time.Duration, change func()) {
		t.Helper()
		for _, q := range c.user.levels {
			q.pace.due.Store(0)
		}
		began := monotonicTime()
		change()
		if got := time.Duration(max(0, c.user.levels.dueTime()-began)); got < atLeast || got >= below {
			t.Errorf("%s: charged %v, want %v to %v", what, got, atLeast, below)
		}
	}
	b := bound{addr: netip.MustParseAddr("127.0.0.1"), port: 8080}
	listen := func(id uint32) func() {
		return func() {
			if ok, err := s.addListener(c, id, b); !ok || err != nil {
				t.Error(ok, err)
			}
		}
	}
	brokertest.Eventually(t, "a round is measured", func() bool {
		listen(1)()
		c.removeListener(1)
		return g.shown.Load() > 0
	})
	quiet := func() {
		t.Helper()
		brokertest.Eventually(t, "no more are shown", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return !g.showing
		})
	}
	quiet()
	g.mu.Lock()
	g.services = map[uint16]ports{80: {8080: {}}}
	g.mu.Unlock()
	const round = 100 * time.Hour
	set := func() {
		t.Helper()
		quiet() // what is shown is measured
		g.shown.Store(int64(round))
	}
	set()
	charged("the first", 2*paceShare*round, 3*paceShare*round, listen(1))
	set()
	charged("the second", 0, round, listen(2))
	set()
	charged("one of two", 0, round, func() { c.removeListener(1) })
	set()
	charged("the last", 2*paceShare*round, 3*paceShare*round, func() { c.removeListener(2) })
}
