package emp

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"exnet/fabric"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// groupView is what a node was told last.
type groupView struct {
	mu     sync.Mutex
	groups []Group
}

func (v *groupView) set(g []Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.groups = g
}

func (v *groupView) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.groups)
}

func TestGroups(t *testing.T) {
	dir := tempDir(t)
	var nodes []node
	var views []*groupView
	for range 3 {
		v := new(groupView)
		views = append(views, v)
		nodes = append(nodes, start(t, Config{Dir: dir, OnGroups: v.set}, fakeLinker))
	}
	all := func(want string) {
		t.Helper()
		for i, v := range views {
			eventually(t, fmt.Sprintf("node %d: %s, is %v", 1+i, want, v), within, func() bool { return v.String() == want })
		}
	}
	nodes[0].JoinGroup(addr("239.1.1.1"))
	all("[{239.1.1.1 1 [1]}]")
	nodes[1].JoinGroup(addr("239.1.1.1"))
	nodes[1].JoinGroup(addr("239.1.1.1"))
	all("[{239.1.1.1 1 [1 2]}]")
	nodes[2].JoinGroup(addr("ff05::1:3"))
	all("[{239.1.1.1 1 [1 2]} {ff05::1:3 2 [3]}]")
	nodes[0].LeaveGroup(addr("239.1.1.1"))
	nodes[0].LeaveGroup(addr("239.9.9.9")) // was not joined
	all("[{239.1.1.1 1 [2]} {ff05::1:3 2 [3]}]")
	nodes[1].stop() // its goodbye ends the group
	views = slices.Delete(views, 1, 2)
	all("[{ff05::1:3 2 [3]}]")
	nodes[0].JoinGroup(addr("239.1.1.1"))
	all("[{239.1.1.1 3 [1]} {ff05::1:3 2 [3]}]") // another fabric group than before
	nodes[0].LeaveGroup(addr("239.1.1.1"))
	nodes[2].LeaveGroup(addr("ff05::1:3"))
	all("[]")
	if slices.Contains(files(t, dir), groupsName) {
		t.Error("the file is there without a group")
	}
	nodes[0].JoinGroup(addr("239.1.1.1"))
	all("[{239.1.1.1 1 [1]}]")
	// What a stranger wrote is replaced.
	if err := os.WriteFile(File(dir, 0, "")[:len(dir)]+"/"+groupsName, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes[2].JoinGroup(addr("239.1.1.1"))
	all("[{239.1.1.1 1 [1 3]}]")
}

// The groups of a node that was killed end.
func TestGroupsOfDeadNode(t *testing.T) {
	dir := tempDir(t)
	v := new(groupView)
	a := start(t, Config{Dir: dir, OnGroups: v.set}, fakeLinker)
	f := fakeNode(t, a.dir, Description{Version: Version, Node: 7, Token: 77})
	lock, err := a.dir.lock()
	if err != nil {
		t.Fatal(err)
	}
	err = a.dir.editGroups(func(f *groupsFile) {
		f.setMember(groupMember{7, 77}, map[netip.Addr]bool{addr("239.1.1.1"): true})
	})
	lock.Close()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "told", within, func() bool { return v.String() == "[{239.1.1.1 1 [7]}]" })
	f.Close()
	eventually(t, "told", within, func() bool { return v.String() == "[]" })
}

// When all fabric groups are taken, the broadcast group is left.
func TestGroupsFull(t *testing.T) {
	var f groupsFile
	want := make(map[netip.Addr]bool)
	for i := range 64 {
		want[netip.AddrFrom4([4]byte{239, 0, 0, byte(i)})] = true
	}
	m := groupMember{1, 1}
	f.setMember(m, want)
	used := make(map[fabric.GroupID]int)
	for _, g := range f.groups() {
		used[g.ID]++
	}
	if len(used) != 63 || used[fabric.GroupBroadcast] != 2 || used[0] != 0 {
		t.Errorf("%v", used)
	}
	if !f.isMember(m, want) {
		t.Error("not a member of all")
	}
	// A free one is found again; who is in the broadcast group stays there.
	delete(want, netip.AddrFrom4([4]byte{239, 0, 0, 9}))
	want[addr("239.1.1.1")] = true
	f.setMember(m, want)
	for _, g := range f.groups() {
		if g.Addr == addr("239.1.1.1") && g.ID != 10 || g.Addr == addr("239.0.0.63") && g.ID != fabric.GroupBroadcast {
			t.Errorf("%+v", g)
		}
	}
}
