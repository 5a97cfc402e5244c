package rpc

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/node/rpc/caller"
	"exnet/node/rpc/caller/callertest"
)

func TestMain(m *testing.M) { callertest.Main(m) }

// An account has so many connections at once, whatever others have; root has as many as it wants.
func TestGate(t *testing.T) {
	g := NewGate(3)
	enter := func(user caller.Account, n int, last bool) {
		t.Helper()
		for i := range n {
			if ok := g.enter(user); ok != (last || i+1 < n) {
				t.Errorf("connection %d of user %d: %v", i+1, user, ok)
			}
		}
	}
	enter(1000, 4, false)
	enter(1001, 3, true)
	enter(caller.Root, 100, true)
	g.leave(1000)
	enter(1000, 2, false)
	for user, n := range map[caller.Account]int{1000: 3, 1001: 3, caller.Root: 100} {
		for range n {
			g.leave(user)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.connections) > 0 {
		t.Errorf("%v are left", g.connections)
	}
}

// All users of a user namespace have the connections of who has made it.
func TestGateSubordinateUsers(t *testing.T) {
	ln := callertest.Listen(t)
	g := NewGate(1)
	for uid := range uint32(2) {
		ids := callertest.IDs(100000, 65536)
		conn, _, _ := callertest.Start(t, ln, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			Credential: &syscall.Credential{Uid: 7 + uid, Gid: 7}})
		if leave, err := g.Enter(conn); (err == nil) != (uid == 0) {
			t.Errorf("user %d: %v", 100007+uid, err)
		} else if err == nil {
			defer leave()
		}
	}
}
