package emp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"exnet/fabric"
)

// The groups file lists the IP multicast groups that have members, and the fabric
// group of each. It is replaced as a whole under the lock, and does not exist while
// there are no groups. An IP group keeps its fabric group as long as it has members.
const (
	groupsName = "groups"
	// maxGroups is how many bytes of it are read: tens of thousands of memberships.
	maxGroups = 16 << 20
)

// The fabric groups for IP groups. Group 0 is left out: a field that was not set must
// not name a group.
const (
	firstGroup fabric.GroupID = 1
	lastGroup                 = fabric.GroupBroadcast - 1
)

// Group is an IP multicast group that has members.
type Group struct {
	Addr netip.Addr
	// ID is its fabric group, fabric.GroupBroadcast if no other was free.
	ID      fabric.GroupID
	Members []fabric.NodeID // in ascending order
}

type groupsFile struct {
	Last   fabric.GroupID `json:"last"` // assigned last
	Groups []groupEntry   `json:"groups"`
}

type groupEntry struct {
	Addr    netip.Addr     `json:"addr"`
	ID      fabric.GroupID `json:"group"`
	Members []groupMember  `json:"members"`
}

type groupMember struct {
	Node  fabric.NodeID `json:"node"`
	Token Token         `json:"token"`
}

// freeGroup returns a free fabric group. It assigns them in turn, so that a freed group is
// not reused at once, while frames to it may be under way.
func (f *groupsFile) freeGroup() fabric.GroupID {
	for range lastGroup {
		if f.Last++; f.Last < firstGroup || f.Last > lastGroup {
			f.Last = firstGroup
		}
		if !slices.ContainsFunc(f.Groups, func(e groupEntry) bool { return e.ID == f.Last }) {
			return f.Last
		}
	}
	return fabric.GroupBroadcast
}

// setMember makes m a member of the groups in want, and of no others.
func (f *groupsFile) setMember(m groupMember, want map[netip.Addr]bool) {
	f.keepMembers(func(addr netip.Addr, other groupMember) bool { return other != m || want[addr] })
	addrs := make([]netip.Addr, 0, len(want))
	for a := range want {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare) // assign fabric groups in order
	for _, a := range addrs {
		i := slices.IndexFunc(f.Groups, func(e groupEntry) bool { return e.Addr == a })
		if i < 0 {
			i = len(f.Groups)
			f.Groups = append(f.Groups, groupEntry{Addr: a, ID: f.freeGroup()})
		}
		if e := &f.Groups[i]; !slices.Contains(e.Members, m) {
			e.Members = append(e.Members, m)
		}
	}
}

// keepMembers removes the members for which ok returns false, and the groups without members.
func (f *groupsFile) keepMembers(ok func(netip.Addr, groupMember) bool) {
	for i := range f.Groups {
		e := &f.Groups[i]
		e.Members = slices.DeleteFunc(e.Members, func(m groupMember) bool { return !ok(e.Addr, m) })
	}
	f.Groups = slices.DeleteFunc(f.Groups, func(e groupEntry) bool { return len(e.Members) == 0 })
}

// isMember reports whether m is a member of exactly the groups in want.
func (f *groupsFile) isMember(m groupMember, want map[netip.Addr]bool) bool {
	n := 0
	for _, e := range f.Groups {
		if slices.Contains(e.Members, m) {
			if !want[e.Addr] {
				return false
			}
			n++
		}
	}
	return n == len(want)
}

// groups returns the groups of the file.
func (f *groupsFile) groups() []Group {
	var all []Group
	for _, e := range f.Groups {
		g := Group{Addr: e.Addr, ID: e.ID}
		for _, m := range e.Members {
			g.Members = append(g.Members, m.Node)
		}
		slices.Sort(g.Members)
		g.Members = slices.Compact(g.Members)
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Group) int { return a.Addr.Compare(b.Addr) })
	return all
}

// readGroups reads the groups file.
func (d *dir) readGroups() (f groupsFile, err error) {
	file, err := d.openFile(groupsName)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, maxGroups))
		file.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, dirError(err)
	}
	if f, err = parseGroups(text); err != nil {
		return f, fmt.Errorf("emp: %s: %w", d.file(groupsName), err)
	}
	return f, nil
}

// parseGroups reads a groups file. It must not trust text: anyone who may write to the
// directory may have written it. It leaves out entries that no node of exnet writes.
func parseGroups(text []byte) (f groupsFile, err error) {
	if err := json.Unmarshal(text, &f); err != nil {
		return groupsFile{}, err
	}
	f.Groups = slices.DeleteFunc(f.Groups, func(e groupEntry) bool {
		return !e.Addr.IsMulticast() || e.ID < firstGroup || e.ID > fabric.GroupBroadcast
	})
	return f, nil
}

// editGroups changes the groups file, and removes nodes that do not live. The
// caller holds the lock.
func (d *dir) editGroups(edit func(*groupsFile)) error {
	f, err := d.readGroups()
	if err != nil {
		f = groupsFile{} // replace a broken file
	}
	before := slices.Clone(f.Groups)
	for i := range before {
		before[i].Members = slices.Clone(before[i].Members)
	}
	alive, _, err := d.listNodes()
	if err != nil {
		return err
	}
	f.keepMembers(func(_ netip.Addr, m groupMember) bool {
		return slices.ContainsFunc(alive, func(desc Description) bool { return desc.Node == m.Node && desc.Token == m.Token })
	})
	edit(&f)
	path := d.file(groupsName)
	switch {
	case len(f.Groups) == 0:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return dirError(err)
		}
		return nil
	case slices.EqualFunc(before, f.Groups, func(a, b groupEntry) bool {
		return a.Addr == b.Addr && a.ID == b.ID && slices.Equal(a.Members, b.Members)
	}):
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("emp: %w", err)
	}
	temp := path + newSuffix
	out, err := d.createFile(temp)
	if err == nil {
		_, err = out.Write(append(text, '\n'))
		err = errors.Join(err, out.Chmod(d.fileMode()), out.Close())
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return dirError(err)
	}
	return nil
}

// JoinGroup makes this node a member of an IP multicast group, until LeaveGroup. Neither
// waits: Run writes the change to the directory, and then calls OnGroups.
func (m *Member) JoinGroup(a netip.Addr) { m.wish(a, true) }

// LeaveGroup ends a membership; see JoinGroup.
func (m *Member) LeaveGroup(a netip.Addr) { m.wish(a, false) }

func (m *Member) wish(a netip.Addr, member bool) {
	m.mu.Lock()
	if member {
		m.wishes[a] = true
	} else {
		delete(m.wishes, a)
	}
	m.mu.Unlock()
	select {
	case m.wished <- struct{}{}:
	default: // Run has not handled the last wish yet
	}
}

// syncGroups writes this node's memberships to the groups file, and reports changes to
// OnGroups. Only Run's goroutine calls it.
func (m *Member) syncGroups() {
	m.mu.Lock()
	want := make(map[netip.Addr]bool, len(m.wishes))
	for a := range m.wishes {
		want[a] = true
	}
	m.mu.Unlock()
	self := groupMember{m.self.Node, m.self.Token}
	f, err := m.dir.readGroups()
	if err != nil || !f.isMember(self, want) {
		var lock *os.File
		if lock, err = m.dir.lock(); err == nil {
			err = m.dir.editGroups(func(f *groupsFile) { f.setMember(self, want) })
			lock.Close()
		}
		if err == nil {
			f, err = m.dir.readGroups()
		}
	}
	if err != nil {
		m.log.Warn("cannot update the multicast groups", "reason", err)
		return
	}
	now := f.groups()
	if slices.EqualFunc(now, m.told, func(a, b Group) bool {
		return a.Addr == b.Addr && a.ID == b.ID && slices.Equal(a.Members, b.Members)
	}) {
		return
	}
	m.told = now
	m.onGroups(now)
}
