package ports

import (
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/ports/portstest"
)

// dial connects to a node as a process.
func (n *node) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.processes, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// A program of the next release has a port, in the newest version of this one.
func TestNextVersion(t *testing.T) {
	n := nodes(t, 1)[0]
	next := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: uint64(wire.Versions.Oldest), C: uint64(wire.Versions.Newest) + 1}
	if r := portstest.Ask(t, n.dial(t), next); r.Status != wire.StatusOK || r.C != wire.Version {
		t.Errorf("a program of the next release: %+v", r)
	}
}

// A user has no more than so many ports; VPIDs are used again late, and there is an end of them.
func TestLimits(t *testing.T) {
	n := nodes(t, 1)[0]
	open := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version}
	if r := portstest.Ask(t, n.dial(t), wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version + 1}); r.Status != wire.StatusVersion || r.A != wire.Version {
		t.Errorf("another version: %+v", r)
	}
	first := n.dial(t)
	if r := portstest.Ask(t, first, open); r.Status != wire.StatusOK || r.Addr != (wire.Addr{Node: 1, VPID: wire.FirstVPID}) {
		t.Fatalf("%+v", r)
	}
	first.Close()
	n.idle(t)
	if r := portstest.Ask(t, n.dial(t), open); r.Addr.VPID != wire.FirstVPID+1 {
		t.Errorf("the second port: %+v", r)
	}
	for i := 1; ; i++ {
		r := portstest.Ask(t, n.dial(t), open)
		if r.Status == wire.StatusOK {
			continue
		}
		if r.Status != wire.StatusFull || i != DefaultPerUser && i != int(fabric.VPIDs-wire.FirstVPID) {
			t.Errorf("after %d ports: %+v", i, r)
		}
		break
	}
}

// Users reach their own ports, and root's programs all.
func TestRights(t *testing.T) {
	for _, c := range []struct {
		from, to rights
		want     bool
	}{
		{rights{1000, 0}, rights{1000, 0}, true},
		{rights{1000, 0}, rights{1001, 0}, false},
		{rights{1000, 0}, rights{0, 0}, false},
		{rights{0, 0}, rights{1000, 0}, true},
		{rights{1000, 1}, rights{1000, 0}, false},
		{rights{0, 1}, rights{0, 0}, false},
	} {
		if c.from.mayReach(c.to) != c.want {
			t.Errorf("%+v to %+v: %v", c.from, c.to, !c.want)
		}
	}
}

// Whatever a connection says, first or later, to processes' socket or peers': the server goes on.
func TestGarbage(t *testing.T) {
	all := nodes(t, 2)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		path := all[0].processes
		if i%3 == 0 {
			path = all[0].peers
		}
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		hello := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitRMA, A: wire.Version}
		if i%3 == 0 {
			hello = wire.Message{Op: wire.OpHello, A: wire.Version, Addr: wire.Addr{Node: 2}}
		}
		send := func(m wire.Message) {
			b, _ := m.AppendBinary(nil)
			if i%5 == 4 {
				b = b[:r.IntN(len(b))]
			}
			_, _ = conn.Write(b) // it may have been thrown out
		}
		if i%2 == 0 {
			send(hello)
		}
		for range r.IntN(20) {
			send(wire.Message{
				Op: wire.Op(r.IntN(40)), Number: r.Uint32() >> r.IntN(32), Addr: wire.Addr{Node: fabric.NodeID(r.IntN(4)), VPID: fabric.VPID(r.IntN(300))},
				Unit: wire.Unit(r.IntN(3)), A: r.Uint64() >> r.IntN(64), B: r.Uint64() >> r.IntN(64), C: r.Uint64N(3), D: r.Uint64N(2),
			})
		}
		conn.Close()
	}
	all[0].idle(t)
	if a := portstest.Ask(t, all[0].dial(t), wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version}); a.Status != wire.StatusOK {
		t.Errorf("%+v", a)
	}
}

// A program that connects and ends has done nothing wrong: it may have looked whether there is a
// node, or was killed when it asked for its first port.
func TestEndsAtOnce(t *testing.T) {
	open, err := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range [][]byte{nil, open} {
		endsAtOnce(t, said)
	}
}

func endsAtOnce(t *testing.T, said []byte) {
	path := filepath.Join(t.TempDir(), "ports")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := New(Config{Node: 1})
	defer s.Close()
	look, err := net.DialUnix("unixpacket", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if said != nil {
		if _, err := look.Write(said); err != nil {
			t.Fatal(err)
		}
	}
	look.Close()
	if err := s.Process(conn); err != nil {
		t.Errorf("after %d bytes: %v", len(said), err)
	}
}
