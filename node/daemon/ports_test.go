package daemon

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/ports/portstest"
)

// openPort opens a port as a process in the namespace of a node.
func openPort(t *testing.T, ns *netns.NS, name string) (conn *net.UnixConn, at wire.Addr) {
	t.Helper()
	err := ns.Do(func() (err error) {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := portstest.Ask(t, conn, wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version})
	if r.Status != wire.StatusOK {
		t.Fatalf("open: %+v", r)
	}
	return conn, r.Addr
}

// Processes find the node of their namespace, their ports reach those of other nodes, and all
// read each other's registers.
func TestRootPorts(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	nsA, nsB := netnstest.New(t), netnstest.New(t)
	a, b := start(t, dir, nsA, "10.2.0.1/24"), start(t, dir, nsB, "10.2.0.2/24")
	connA, atA := openPort(t, nsA, portsSocket)
	_, atB := openPort(t, nsB, portsSocket+"-lab-2")
	if atA != (wire.Addr{Node: 1, VPID: wire.FirstVPID}) || atB != (wire.Addr{Node: 2, VPID: wire.FirstVPID}) {
		t.Errorf("ports %v and %v", atA, atB)
	}
	eventually(t, "a port of the other node", func() bool {
		r := portstest.Ask(t, connA, wire.Message{Op: wire.OpConnect, Addr: atB})
		return r.Status == wire.StatusOK // they may not be linked yet
	})
	if got := b.openPorts(); len(got) != 1 || got[0].Peers != 1 || got[0].Unit != "velo" {
		t.Errorf("%+v", got)
	}
	read := func(node fabric.NodeID, addr uint64) wire.Message {
		return portstest.Ask(t, connA, wire.Message{Op: wire.OpRegister, Addr: wire.Addr{Node: node}, A: addr})
	}
	for n := fabric.NodeID(1); n <= 2; n++ {
		if r := read(n, registersNode); r.Status != wire.StatusOK || r.B != uint64(n) {
			t.Errorf("register 0 of node %d: %+v", n, r)
		}
	}
	if r := read(1, registersPorts); r.Status != wire.StatusOK || r.B != 1 {
		t.Errorf("ports opened at node 1: %+v", r)
	}
	const usecs = registersReceive + 8
	if r := portstest.Ask(t, connA, wire.Message{Op: wire.OpRegister, Addr: wire.Addr{Node: 2}, A: usecs, B: 70, C: 1}); r.Status != wire.StatusOK {
		t.Errorf("write: %+v", r)
	}
	if got := read(2, usecs); got.B != 70 || b.node.Interface.Coalesce().Delay != 70*time.Microsecond {
		t.Errorf("after a write: %+v", got)
	}
	for _, addr := range []uint64{registersCounters, 0x18} {
		if r := portstest.Ask(t, connA, wire.Message{Op: wire.OpRegister, Addr: wire.Addr{Node: 2}, A: addr, B: 70, C: 1}); r.Status != wire.StatusInvalid {
			t.Errorf("write of %#x: %+v", addr, r)
		}
	}
	all, err := ask(t, dir, 2).Registers(&control.SetRegister{Name: "receive.mode", Value: 1})
	if err != nil || len(all.Registers) < 40 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := ask(t, dir, 2).Registers(&control.SetRegister{Name: "receive.mode", Value: 9}); err == nil {
		t.Error("a mode that there is not")
	}
	connA.Close()
	eventually(t, "the end of a port", func() bool { return len(a.openPorts()) == 0 })
}

// openPorts are the open ports of a node.
func (r *running) openPorts() []control.Port {
	return r.answerRequest(control.Request{Op: control.OpPorts}).Ports.Ports
}
