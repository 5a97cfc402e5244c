package ports

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"exnet/fabric"
)

func TestMessage(t *testing.T) {
	m := Message{
		Op: OpConnect, Status: StatusDenied, Number: 0x01020304, Addr: Addr{0x1122, 0x33}, Unit: fabric.UnitRMA,
		A: 1, B: 2, C: 3, D: 0xff00000000000000,
	}
	want := []byte{
		2, 0, // operation
		3, 0, // status
		4, 3, 2, 1, // number
		0x22, 0x11, // node
		0x33, 0, // VPID
		2, 0, // unit
		0, 0, // reserved
		1, 0, 0, 0, 0, 0, 0, 0, // A
		2, 0, 0, 0, 0, 0, 0, 0, // B
		3, 0, 0, 0, 0, 0, 0, 0, // C
		0, 0, 0, 0, 0, 0, 0, 0xff, // D
	}
	b, err := m.AppendBinary(nil)
	if err != nil || !bytes.Equal(b, want) {
		t.Fatalf("%x, %v", b, err)
	}
	var got Message
	for n := range b {
		if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || got != (Message{}) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := got.UnmarshalBinary(b); err != nil || got != m {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, wrong := range [][]byte{append(b, 0), append([]byte{0, 0}, b[2:]...), append(append(b[:12:12], 3), b[13:]...)} {
		if err := got.UnmarshalBinary(wrong); !errors.Is(err, ErrMessage) {
			t.Errorf("%x: %v", wrong, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	b, _ := Message{Op: OpOpen, Unit: fabric.UnitVELO, A: Version}.AppendBinary(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if m.UnmarshalBinary(b) != nil {
			return
		}
		c, _ := m.AppendBinary(nil)
		if err := again.UnmarshalBinary(c); err != nil || again != m {
			t.Fatalf("%+v, %+v: %v", m, again, err)
		}
	})
}

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

// ask sends a message and returns the answer, without its descriptors.
func ask(t *testing.T, conn *net.UnixConn, m Message) (r Message) {
	t.Helper()
	b, _ := m.AppendBinary(nil)
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, MessageSize)
	n, err := conn.Read(buf)
	if err == nil {
		err = r.UnmarshalBinary(buf[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A user has no more than so many ports; VPIDs are used again late, and there is an end of them.
func TestLimits(t *testing.T) {
	n := nodes(t, 1)[0]
	open := Message{Op: OpOpen, Unit: fabric.UnitVELO, A: Version}
	if r := ask(t, n.dial(t), Message{Op: OpOpen, Unit: fabric.UnitVELO, A: Version + 1}); r.Status != StatusVersion || r.A != Version {
		t.Errorf("another version: %+v", r)
	}
	first := n.dial(t)
	if r := ask(t, first, open); r.Status != StatusOK || r.Addr != (Addr{1, FirstVPID}) {
		t.Fatalf("%+v", r)
	}
	first.Close()
	n.idle(t)
	if r := ask(t, n.dial(t), open); r.Addr.VPID != FirstVPID+1 {
		t.Errorf("the second port: %+v", r)
	}
	for i := 1; ; i++ {
		r := ask(t, n.dial(t), open)
		if r.Status == StatusOK {
			continue
		}
		if r.Status != StatusFull || i != DefaultPerUser && i != int(fabric.VPIDs-FirstVPID) {
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
		hello := Message{Op: OpOpen, Unit: fabric.UnitRMA, A: Version}
		if i%3 == 0 {
			hello = Message{Op: OpHello, A: Version, Addr: Addr{Node: 2}}
		}
		send := func(m Message) {
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
			send(Message{
				Op: Op(r.IntN(40)), Number: r.Uint32() >> r.IntN(32), Addr: Addr{fabric.NodeID(r.IntN(4)), fabric.VPID(r.IntN(300))},
				Unit: Unit(r.IntN(3)), A: r.Uint64() >> r.IntN(64), B: r.Uint64() >> r.IntN(64), C: r.Uint64N(3), D: r.Uint64N(2),
			})
		}
		conn.Close()
	}
	all[0].idle(t)
	if a := ask(t, all[0].dial(t), Message{Op: OpOpen, Unit: fabric.UnitVELO, A: Version}); a.Status != StatusOK {
		t.Errorf("%+v", a)
	}
}
