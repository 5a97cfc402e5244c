package lab

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/node"
	"exnet/test/testlab"
)

// datagrams is a net.PacketConn that has datagrams, and then nothing any more.
type datagrams struct {
	net.PacketConn
	list [][]byte
}

var errNoMore = errors.New("timeout")

func (d *datagrams) ReadFrom(b []byte) (int, net.Addr, error) {
	if len(d.list) == 0 {
		return 0, nil, errNoMore
	}
	n := copy(b, d.list[0])
	d.list = d.list[1:]
	return n, nil, nil
}

func TestReceiveAll(t *testing.T) {
	damaged := numberedDatagram(1)
	damaged[500] ^= 1
	for _, c := range []struct {
		name string
		list [][]byte
		want string // "": no error
	}{
		{"all", [][]byte{numberedDatagram(2), numberedDatagram(0)}, ""},
		{"its own too, and one twice", [][]byte{numberedDatagram(1), numberedDatagram(0), numberedDatagram(0), numberedDatagram(2)}, ""},
		{"one missing", [][]byte{numberedDatagram(0)}, "node 2 did not get the datagram of node 3"},
		{"none", nil, "node 2 did not get the datagram of node 1"},
		{"damaged", [][]byte{damaged}, "node 2 got a damaged datagram"},
		{"cut", [][]byte{numberedDatagram(0)[:999]}, "damaged"},
		{"longer", [][]byte{append(numberedDatagram(0), 0)}, "damaged"},
		{"of a node that is not there", [][]byte{numberedDatagram(3)}, "damaged"},
		{"empty", [][]byte{{}}, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := receiveAll(&datagrams{list: c.list}, 1, 3)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestBroadcastAddr(t *testing.T) {
	if got := BroadcastAddr().String(); got != "10.2.0.255" {
		t.Errorf("got %s", got)
	}
}

// testLab brings up a lab for a test.
func testLab(t *testing.T, nodes int) *Lab {
	t.Helper()
	testlab.RequireTUN(t)
	l, err := New(node.ClusterConfig{Nodes: nodes}, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestRootBroadcast(t *testing.T) {
	leavesNothing(t)
	l := testLab(t, 3)
	for _, f := range Families() {
		if err := Broadcast(t.Context(), l, f); err != nil {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// TestRootBroadcastMissing: a node whose interface is down is missed.
func TestRootBroadcastMissing(t *testing.T) {
	leavesNothing(t)
	l := testLab(t, 2)
	down := exec.Command("ip", "link", "set", l.Cluster.Nodes[1].Device.Name(), "down")
	if err := l.Cluster.Namespace(1).Run(down); err != nil {
		t.Skip(err)
	}
	for _, f := range Families() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := Broadcast(ctx, l, f)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "node 2") {
			t.Errorf("%v: %v, want that node 2 is missing", f, err)
		}
	}
}
