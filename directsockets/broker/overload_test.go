package broker

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// fullTable makes statistics as a hostile client may: with the most entries that there may be, each
// of a connection through memory to another address.
func fullTable(t *testing.T) int {
	t.Helper()
	const header, entry = 256, 256
	b := make([]byte, header+connstats.MaxEntries*entry)
	fd := statsFD(t, 1)
	if _, err := unix.Pread(fd, b[:header], 0); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	binary.LittleEndian.PutUint32(b[12:], connstats.MaxEntries)
	for i := range connstats.MaxEntries {
		e := b[header+i*entry:]
		binary.LittleEndian.PutUint32(e, 2)
		e[4], e[12] = byte(connstats.ModeDirect), byte(connstats.PathMemory)
		e[32] = 0xfd
		binary.BigEndian.PutUint32(e[40:], uint32(i))
		e[64] = 1
	}
	return brokertest.File(t, b, len(b), rpc.Seals|unix.F_SEAL_SEAL)
}

// said is what a session says to nobody.
type said struct{ refused atomic.Int64 }

func (r *said) Abort() {}
func (r *said) Post(b []byte, _ ...int) error {
	var m wire.Message
	if err := m.UnmarshalBinary(b); err == nil && m.Type == wire.Refused && m.Reason == wire.TooMany {
		r.refused.Add(1)
	}
	return nil
}

// newSession admits a client of an account.
func (s *Server) newSession(t *testing.T, a caller.Account, out replies) *session {
	t.Helper()
	c := &session{s: s, account: a, out: out, stats: -1, listeners: make(map[uint32]*listener), offers: make(map[wire.Nonce]*offer)}
	if err := s.addSession(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStatisticsFlood has a user's clients end at once, each with a full table of what never was.
// None of it is remembered, it takes no memory, one is read after the other, and its user is
// charged for it.
func TestStatisticsFlood(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{NoSocket: true})
	const clients, evil = 24, 12345
	fd := fullTable(t)
	defer unix.Close(fd)
	var all []*session
	for range clients {
		c := s.newSession(t, evil, new(said))
		var err error
		if c.stats, err = rpc.Dup(fd); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n := len(s.Shared()); n != 0 { // as a scrape of the metrics does
		t.Errorf("%d addresses of live clients", n)
	}
	s.scanning.Lock() // the first is being read
	for _, c := range all {
		c.removeClient()
	}
	s.mu.Lock()
	u := s.users[owner{account: evil}]
	if u == nil || len(u.ended) != clients || !u.summing {
		t.Errorf("%+v: all but one wait", u)
	}
	s.mu.Unlock()
	s.scanning.Unlock()
	brokertest.Eventually(t, "all were read", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(u.ended) == 0 && !u.summing
	})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d tables took %d MB", clients, used>>20)
	}
	s.mu.Lock()
	past := len(s.shared.past)
	s.mu.Unlock()
	if past != 0 {
		t.Errorf("%d addresses are remembered, none was met", past)
	}
	// What is charged is more than the time that it takes, unless something comes between.
	brokertest.Eventually(t, "its user is charged", func() bool {
		u.local.pace.due.Store(0)
		s.readEnded(u, fd)
		return u.local.pace.due.Load() > monotonicTime()
	})
	if n := s.Stats().StatisticsUnread; n != 0 {
		t.Errorf("%d were not read", n)
	}
}

// TestStatisticsWaitBounded has more tables wait than may: the rest is counted, and closed.
func TestStatisticsWaitBounded(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{NoSocket: true})
	fd := statsFD(t, 1)
	defer unix.Close(fd)
	s.scanning.Lock()
	c := s.newSession(t, 12345, new(said))
	c.stats, _ = rpc.Dup(fd)
	s.mu.Lock()
	c.user.ended = make([]int, maxEnded) // as if so many waited
	for i := range c.user.ended {
		c.user.ended[i] = -1
	}
	c.user.summing = true
	s.mu.Unlock()
	u := c.user
	c.removeClient()
	if n := s.Stats().StatisticsUnread; n != 1 || len(u.ended) != maxEnded {
		t.Errorf("%d were not read, %d wait", n, len(u.ended))
	}
	s.scanning.Unlock()
}

// TestListenersOfAUser announces more than the clients of one user may together: those beyond are
// refused, as too many, and another user's are not.
func TestListenersOfAUser(t *testing.T) {
	s, _ := startServer(t, Config{NoSocket: true})
	listen := func(a caller.Account, clients, each int) (refused int64) {
		for i := range clients {
			out := new(said)
			c := s.newSession(t, a, out)
			t.Cleanup(func() { s.dismissSession(c) })
			for id := range each {
				if err := c.addListener(uint32(id+1), bound{addr: ap("127.0.0.2:1").Addr(), port: uint16(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
			refused += out.refused.Load()
		}
		return refused
	}
	const clients = maxListeners/wire.MaxListeners + 2
	if n := listen(12345, clients, wire.MaxListeners); n != 2*wire.MaxListeners {
		t.Errorf("%d listeners are refused, want %d", n, 2*wire.MaxListeners)
	}
	if n := s.Stats().ListenersRefused; n != 2*wire.MaxListeners {
		t.Errorf("%d are counted", n)
	}
	if n := listen(12346, 1, 100); n != 0 {
		t.Errorf("%d of another user are refused", n)
	}
	if n := listen(caller.Root, clients, wire.MaxListeners); n != 0 {
		t.Errorf("%d of root are refused", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bounds) != clients+0 || len(s.listeners) != clients {
		t.Errorf("%d places at %d ports, for any number of listeners", len(s.bounds), len(s.listeners))
	}
}

// TestMeter charges what is measured: whoever asks for what costs much waits in proportion, also
// for many that begin at once, and who asks for what costs little does not.
func TestMeter(t *testing.T) {
	run := func(cost time.Duration, n, atOnce int) (waited time.Duration) {
		l := levels{newQuota(1)}
		var m meter
		at := int64(time.Hour)
		for done := 0; done < n; done += atOnce {
			begun := make([]time.Duration, atOnce)
			longest := time.Duration(0)
			for i := range begun {
				var wait time.Duration
				begun[i], wait = m.chargeBefore(l, at)
				longest = max(longest, wait)
			}
			waited += longest
			at += int64(longest)
			for _, charged := range begun {
				at += int64(cost)
				m.chargeAfter(l, at, charged, cost)
			}
		}
		return waited
	}
	const n = 2000
	for _, atOnce := range []int{1, 20} {
		cost := time.Millisecond
		// Of each cost, the user is to get a quarter of the time; the last ones may be due.
		want := (paceShare-1)*n*cost - paceBurst - time.Duration(2*atOnce*paceShare)*cost
		if got := run(cost, n, atOnce); got < want || got > want*11/10+time.Second {
			t.Errorf("%d at once: %d of %v wait %v, want %v", atOnce, n, cost, got, want)
		}
	}
	if got := run(5*time.Microsecond, n, 1); got > paceCost*n {
		t.Errorf("cheap ones wait %v", got)
	}
}

// TestFloodEndsWithItsClient has a client that has asked too much send more, and hang up: nobody
// goes on with what it has sent.
func TestFloodEndsWithItsClient(t *testing.T) {
	s, _ := startServer(t, Config{Limited: true})
	c := greetRaw(t, s.Path())
	s.mu.Lock()
	for one := range s.sessions {
		one.user.levels.chargeTime(monotonicTime(), time.Hour)
	}
	s.mu.Unlock()
	c.send(wire.Message{Type: wire.Unlisten, ID: 1})
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "its session has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions) == 0
	})
}

// TestPaceOutlivesClients ends the last client of a user that has asked too much: the next one
// finds what was charged.
func TestPaceOutlivesClients(t *testing.T) {
	s, _ := startServer(t, Config{NoSocket: true})
	c := s.newSession(t, 12345, new(said))
	c.user.levels.chargeTime(monotonicTime(), time.Hour)
	due := c.user.levels.dueTime()
	s.dismissSession(c)
	c = s.newSession(t, 12345, new(said))
	if c.user.levels.dueTime() != due {
		t.Error("a new connection begins anew")
	}
	for _, q := range c.user.levels {
		q.pace.due.Store(0)
	}
	s.dismissSession(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[owner{account: 12345}]
	if u != nil && !u.leaving {
		t.Errorf("%+v stays", u)
	}
}

// TestGuestIsLimited has root of another mount namespace connect, as in a container without a user
// namespace: limits count for it.
func TestGuestIsLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s, _ := startServer(t, Config{})
	for _, tt := range []struct {
		flags uintptr
		want  caller.Account
	}{{0, caller.Root}, {unix.CLONE_NEWNS, caller.Guest}} {
		cmd := self(roleStay, s.Path())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tt.flags}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Skip(err)
		}
		var found []owner
		brokertest.Eventually(t, "it is there", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			found = keysOf(s.users)
			return len(found) > 0
		})
		if found[0].account != tt.want {
			t.Errorf("flags %#x: account %v, want %v", tt.flags, found[0].account, tt.want)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		brokertest.Eventually(t, "it is gone", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.users) == 0
		})
	}
}

// dialAs connects to a broker as another user.
func dialAs(t *testing.T, uid int, path string) (*net.UnixConn, error) {
	t.Helper()
	var conn *net.UnixConn
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			done <- e
			return
		}
		var err error
		conn, err = net.DialUnix(client.Network, nil, &net.UnixAddr{Name: path, Net: client.Network})
		done <- err
	}()
	return conn, <-done
}

// TestBurst has 200 clients of one user begin at once, each of which listens, connects to the
// next one, and has its connection direct: none is refused anything.
func TestBurst(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	s, _ := startServer(t, Config{})
	for dir := filepath.Dir(s.Path()); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const n, uid = 200, 12345
	type one struct {
		*rawClient
		ln *net.TCPListener
	}
	all := make([]one, n)
	for i := range all {
		all[i].ln = listen(t, "tcp4", "127.0.0.1:0")
		conn, err := dialAs(t, uid, s.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
		if err != nil {
			t.Fatal(err)
		}
		all[i].rawClient = &rawClient{t, conn, in}
	}
	var refused, granted atomic.Int64
	var greeted, work sync.WaitGroup
	greeted.Add(n)
	stats := statsFD(t, 4)
	defer unix.Close(stats)
	conns := make([]connection, n)
	for i := range all {
		conns[i] = connect(t, all[(i+1)%n].ln, all[(i+1)%n].ln.Addr().String())
	}
	for i, c := range all {
		next := conns[i]
		before := conns[(i+n-1)%n]
		work.Go(func() {
			c.send(wire.Message{Type: wire.Hello, Program: "burst"}, stats)
			m, fds := c.next()
			fds.Close()
			if m.Type != wire.Welcome {
				refused.Add(1)
			}
			c.show(wire.Message{Type: wire.Listen, ID: 1}, fdOf(t, c.ln))
			c.show(wire.Message{Type: wire.Claim, ID: 2}, fdOf(t, before.server)) // answered when LISTEN was
			if m, fds = c.next(); m.Type == wire.Refused {
				refused.Add(1)
			}
			fds.Close()
			greeted.Done()
			greeted.Wait()
			b := newBundle(t, next.key)
			c.show(wire.Message{Type: wire.Offer, ID: 3, Nonce: b.nonce}, fdOf(t, next.client), b.seg, b.bell)
			b.handedOver()
			defer unix.Close(b.bell0)
			for id := uint32(4); ; id++ {
				c.show(wire.Message{Type: wire.Claim, ID: id}, fdOf(t, before.server))
				m, fds := c.next()
				fds.Close()
				switch m.Type {
				case wire.Grant:
					granted.Add(1)
					return
				case wire.Refused:
					refused.Add(1)
					return
				}
				time.Sleep(time.Millisecond) // it has not been offered yet
			}
		})
	}
	work.Wait()
	if refused.Load() != 0 || granted.Load() != n {
		t.Errorf("%d of %d are direct, %d were refused", granted.Load(), n, refused.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.users[owner{account: uid}]; u == nil || u.local.held[clients].Load() != n || u.local.held[listeners].Load() != n {
		t.Errorf("%+v", u)
	}
}
