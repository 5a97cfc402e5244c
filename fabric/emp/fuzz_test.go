package emp

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"exnet/fabric"
)

// What is in a node's description is of that node and of some version.
func FuzzDescription(f *testing.F) {
	good, err := json.Marshal(Description{
		Version: Version, Node: 3, Token: 0x1234, Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.0.3/24")}, MTU: 65535,
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(good), "", "{", "null", "[]", `{"version":2,"node":"new form"}`, `{"version":1,"addrs":["10.0.0.1"]}`,
		`{"version":1,"addrs":["fe80::1%eth0/64",""]}`, `{"version":-1}`, `{"version":1,"node":65536}`, `{"version":1,"token":"fffffffffffffffff"}`,
		`{"version":1,"addrs":null,"pid":1e3,"since":"x"}`,
	} {
		f.Add(uint16(3), []byte(text))
	}
	f.Fuzz(func(t *testing.T, node uint16, text []byte) {
		d, ok := parseDescription(fabric.NodeID(node), text)
		if !ok {
			return
		}
		if d.Version == 0 || d.Node != fabric.NodeID(node) {
			t.Fatalf("%+v", d)
		}
		if d.Version != Version {
			return // only its version is looked at
		}
		again, err := json.Marshal(d)
		if err != nil {
			return // a time of the year 10000
		}
		back, ok := parseDescription(d.Node, again)
		if !ok || back.Token != d.Token || !slices.Equal(back.Addrs, d.Addrs) {
			t.Fatalf("%s became %+v", again, back)
		}
		_, _ = chooseID(Config{MAC: func(fabric.NodeID) string { return d.MAC }, Topology: d.Topology, Has: func(fabric.NodeID) bool { return true }}, []Description{d})
	})
}

// Whatever the groups file says: what others are told is sound, and a node can enter
// and leave.
func FuzzGroups(f *testing.F) {
	for _, text := range []string{
		"", "{}", `{"last":7,"groups":[{"addr":"224.0.0.251","group":3,"members":[{"node":1,"token":"0000000000000001"}]}]}`,
		`{"last":255,"groups":[{"addr":"10.0.0.1","group":63,"members":null},{"addr":"ff02::1","group":0}]}`,
		`{"groups":[{"addr":"ff02::5","group":9,"members":[{"node":2},{"node":2},{"node":1}]},{"addr":"ff02::5","group":9}]}`,
		`{"groups":[{"addr":"","group":1,"members":[{}]}]}`, `{"last":256}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseGroups(text)
		if err != nil {
			return
		}
		for _, g := range file.groups() {
			if !g.Addr.IsMulticast() || g.ID < firstGroup || g.ID > fabric.GroupBroadcast || !slices.IsSorted(g.Members) {
				t.Fatalf("%+v", g)
			}
		}
		me := groupMember{Node: 9, Token: 99}
		want := map[netip.Addr]bool{netip.MustParseAddr("224.1.2.3"): true, netip.MustParseAddr("ff02::77"): true}
		file.setMember(me, want)
		for a := range want {
			at := slices.IndexFunc(file.groups(), func(g Group) bool { return g.Addr == a && slices.Contains(g.Members, 9) })
			if at < 0 {
				t.Fatalf("not in %v: %+v", a, file)
			}
		}
		enc, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseGroups(enc); err != nil || !reflect.DeepEqual(back.groups(), file.groups()) {
			t.Fatalf("%s: %v", enc, err)
		}
		for _, g := range file.groups() {
			if g.ID < firstGroup || g.ID > fabric.GroupBroadcast {
				t.Fatalf("%+v", g)
			}
		}
		file.setMember(me, nil)
		for _, e := range file.Groups {
			if slices.Contains(e.Members, me) {
				t.Fatalf("still in %v", e)
			}
		}
	})
}
