package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/identity"
	portswire "exnet/fabric/link/attach/wire"
	"exnet/fabric/link/wire"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/ports/portstest"
)

// keyOf makes a node's key, and the trust file of its authority.
func keyOf(t *testing.T, ca *identity.Pair, n fabric.NodeID) (key, trust string) {
	t.Helper()
	dir := t.TempDir()
	key, trust = filepath.Join(dir, "node.key"), filepath.Join(dir, "trust")
	p, err := identity.Create(identity.Name{Fabric: "lab", Node: n}, ca, time.Hour)
	if err == nil {
		err = errors.Join(p.Save(key), os.WriteFile(trust, identity.PEM(ca.Cert), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return key, trust
}

// Nodes 1 and 2 share a directory, node 3 has another one, as on another host: 3 joins
// through 1, and is linked with both over the network; 1 and 2 keep their shared memory.
func TestRootHosts(t *testing.T) {
	requireTUN(t)
	ca, err := identity.Create(identity.Name{Fabric: "lab", Authority: true}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	here, there := filepath.Join(t.TempDir(), "lab"), filepath.Join(t.TempDir(), "lab")
	var faults *wire.Faults
	begin := func(n fabric.NodeID, dir string, join ...*running) *running {
		key, trust := keyOf(t, ca, n)
		h := Hosts{Listen: "127.0.0.1:0", Key: key, Trust: trust}
		for _, j := range join {
			h.Join = append(h.Join, j.mesh.Addr().String())
		}
		a4, a6 := fmt.Sprintf("10.2.0.%d/24", n), fmt.Sprintf("fd00:10:2::%d/64", n)
		return startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes(a4, a6), Hosts: h, Faults: faults})
	}
	one := begin(1, here)
	two := begin(2, here, one)
	three := begin(3, there, one)
	nodes := []*running{one, two, three}
	for i, n := range nodes {
		for j := range nodes {
			if i == j {
				continue
			}
			for _, addr := range []string{fmt.Sprintf("10.2.0.%d", j+1), fmt.Sprintf("fd00:10:2::%d", j+1)} {
				eventually(t, "ping "+addr, func() bool { _, err := ping(n.ns, addr); return err == nil })
			}
		}
	}
	peers := func(r *running) map[int]control.Peer {
		s, err := r.Status()
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[int]control.Peer)
		for _, p := range s.Peers {
			all[p.Node] = p
		}
		return all
	}
	for _, c := range []struct {
		of   *running
		peer int
		link string
	}{{one, 2, "shm"}, {one, 3, "stream"}, {two, 1, "shm"}, {two, 3, "stream"}, {three, 1, "stream"}, {three, 2, "stream"}} {
		p := peers(c.of)[c.peer]
		if p.Link != c.link || (p.Key != "") != (c.link == "stream") || (p.Endpoint != "") != (c.link == "stream") {
			t.Errorf("node %d: %+v, want %s", c.of.member.ID(), p, c.link)
		}
	}
	eventually(t, "round trips", func() bool { return peers(one)[2].RTTMicros > 0 && peers(one)[3].RTTMicros > 0 })
	s, err := one.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Counters {
		name, _ := splitCounter(c.Name)
		if counterHelp[name] == "" {
			t.Errorf("counter %s: say in metricshelp.go what it counts", name)
		}
	}

	// A node asks another host's for routes, and for nothing else.
	for _, c := range []struct{ text, want string }{
		{`{"op":"stop"}`, `operation \"stop\" is not for other hosts`},
		{`{"op":"route"}`, "is not for other hosts"},
		{`{"op":"route","node":2,"route":{"want":"list"}}`, "is not for other hosts"},
		{`{"op":"topology","node":2}`, "is not for other hosts"},
		{`{"op":"topology"}`, "{}"},
		{`{"op":"profile","profile":"read"}`, "no profile is under way"},
		{`{"op":"status"}`, "is not for other hosts"},
		{`{"op":"route","route":{"want":"list"}}`, "the fabric has no topology"},
		{`{`, "malformed request"},
	} {
		if got := string(one.fromHost(3, []byte(c.text))); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	for n, want := range map[fabric.NodeID]string{3: "the fabric has no topology", 9: "node 9: fabric: peer is down"} {
		r := two.answerRequest(control.Request{Op: control.OpRoute, Route: &control.RouteRequest{Want: control.RouteList}, Node: &n})
		if !strings.Contains(r.Error, want) {
			t.Errorf("node %d: %+v, want %s", n, r, want)
		}
	}

	// Ports of different hosts reach each other.
	port, _ := openPort(t, one.ns, portsSocket)
	_, far := openPort(t, three.ns, portsSocket)
	eventually(t, "a port of another host", func() bool {
		r := portstest.Ask(t, port, portswire.Message{Op: portswire.OpConnect, Addr: far})
		return r.Status == portswire.StatusOK && r.B == 1
	})
	if r := portstest.Ask(t, port, portswire.Message{Op: portswire.OpRegister, Addr: portswire.Addr{Node: 3}}); r.Status != portswire.StatusOK || r.B != 3 {
		t.Errorf("register 0 of node 3: %+v", r)
	}

	group := netip.MustParseAddr("239.1.1.1")
	if _, err := three.groups.Join(group); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group is known", func() bool {
		all := two.groups.listGroups()
		return len(all) == 1 && all[0].Addr == group && slices.Equal(two.nic.Routes().Members(all[0].ID), []fabric.NodeID{3})
	})
	three.stop()
	eventually(t, "left", func() bool { return len(peers(one)) == 1 && len(two.groups.listGroups()) == 0 })

	// A host whose packets meet faults has links that make up for them.
	faults = &wire.Faults{Seed: 1, Drop: 0.05, Corrupt: 0.05}
	four := begin(4, filepath.Join(t.TempDir(), "lab"), one)
	eventually(t, "ping with faults", func() bool { _, err := ping(four.ns, "10.2.0.2"); return err == nil })
	if p, q := peers(four)[2], peers(two)[4]; p.Link != "wire" || q.Link != "wire" || p.Key == "" || q.Key == "" {
		t.Errorf("links with faults: %+v, %+v", p, q)
	}
	transfer(t, four.ns, two.ns, "10.2.0.2", 1<<20)
	if w := counters(t, four.Daemon, "wire."); w["retransmitted"] == 0 || w["crc_errors"] != 0 {
		t.Errorf("node 4: %v", w)
	}
	if w := counters(t, two.Daemon, "wire."); w["crc_errors"] == 0 {
		t.Errorf("node 2: %v", w)
	}
}

func TestHostsConfig(t *testing.T) {
	id := fabric.NodeID(1)
	for _, c := range []struct {
		hosts Hosts
		node  *fabric.NodeID
		want  string
	}{
		{Hosts{}, nil, ""},
		{Hosts{Join: []string{"a:1"}}, nil, "join also needs listen"},
		{Hosts{Plaintext: true}, nil, "also needs listen"},
		{Hosts{Listen: ":1"}, nil, "listen needs key and trust"},
		{Hosts{Listen: ":1", Key: "k"}, nil, "listen needs key and trust"},
		{Hosts{Listen: ":1", Key: "k", Trust: "t"}, nil, ""},
		{Hosts{Listen: ":1", Key: "k", Trust: "t", Plaintext: true}, nil, "neither key nor trust"},
		{Hosts{Listen: ":1", Plaintext: true}, nil, "plaintext needs node"},
		{Hosts{Listen: ":1", Plaintext: true}, &id, ""},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi"}, &id, ""},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi:tcp"}, &id, ""},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi:net"}, &id, "net is not supported"},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi:"}, &id, "use stream, ofi or"},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi:a b"}, &id, "not the name of a provider"},
		{Hosts{Link: "stream"}, nil, ""},
		{Hosts{Listen: ":1", Plaintext: true, Conns: 4}, &id, ""},
		{Hosts{Listen: ":1", Plaintext: true, Conns: 5}, &id, "5 connections for each peer: use 1 to 4"},
		{Hosts{Listen: ":1", Plaintext: true, Conns: 2, Link: "ofi"}, &id, "are for link stream"},
		{Hosts{Conns: 2}, nil, "also needs listen"},
		{Hosts{Congestion: "reno"}, nil, "also needs listen"},
		{Hosts{Listen: ":1", Plaintext: true, Link: "ofi", Congestion: "reno"}, &id, "libfabric chooses its own"},
		{Hosts{Link: "ofi"}, nil, "also needs listen"},
	} {
		_, err := Config{Dir: "/d", Hosts: c.hosts, Node: c.node}.WithDefaults()
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.hosts, err, c.want)
		}
	}
}

// A key or a trust file that does not exist: the error names the setting, and what makes the file.
func TestMissingKey(t *testing.T) {
	ca, err := identity.Create(identity.Name{Fabric: "lab", Authority: true}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, trust := keyOf(t, ca, 1)
	for _, c := range []struct{ key, trust, want string }{
		{"/none", trust, "--key: /none.key does not exist: make it with exn-tun key node"},
		{key, "/none", "--trust: /none does not exist: make it with exn-tun key ca"},
		{key, trust, "<nil>"},
	} {
		d := &Daemon{cfg: Config{Fabric: "lab", Dash: "--", Hosts: Hosts{Listen: ":1", Key: c.key, Trust: c.trust}}}
		if got := fmt.Sprint(d.openStore()); strings.TrimPrefix(got, "invalid configuration: ") != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
