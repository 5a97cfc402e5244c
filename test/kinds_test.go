package e2e

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/node"
)

// Packets that are not the usual ones: with options, which pass through
// netstack even with the fast path, or of other protocols.
func TestRootPacketKinds(t *testing.T) {
	longtest.Skip(t)
	need(t, "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		eachFamily(t, func(t *testing.T, fam family) {
			to := fam.of(b).String()
			a.ping(t, to, 1, 56, "-t", "1") // one hop: the hop limit is untouched
			a.ping(t, to, 1, 56, "-Q", "0x10")
			a.ping(t, to, 1, 56, "-I", ifname)
			for _, size := range []int{1, 400, 2000, 40000} {
				t.Run(fmt.Sprintf("protocol=253/size=%d", size), func(t *testing.T) { a.sendRaw(t, b, fam, size) })
			}
		})
		t.Run("record route", func(t *testing.T) {
			const n = 3
			before := l.total()
			a.ping(t, family(4).of(b).String(), n, 56, "-R")
			checkGrowth(t, before, l.total, atLeast("ipstack.slow_tx", 2*n))
		})
	})
}

// sendRaw sends a packet of an IP protocol that is reserved for experiments
// (RFC 3692).
func (h *host) sendRaw(t *testing.T, to *host, fam family, size int) {
	t.Helper()
	network := pick(fam, "ip4:253", "ip6:253")
	listen := func(h *host) (conn net.PacketConn) {
		if err := h.ns.Do(func() (err error) {
			conn, err = net.ListenPacket(network, fam.of(h).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	from, at := listen(h), listen(to)
	want := bytes.Repeat([]byte("exn0"), (size+3)/4)[:size]
	if _, err := from.WriteTo(want, at.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	at.SetReadDeadline(time.Now().Add(hangTime))
	got := make([]byte, 1<<16)
	n, src, err := at.ReadFrom(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:n], want) || src.String() != fam.of(h).String() {
		t.Errorf("got %d bytes from %v that are not the %d from %v", n, src, size, fam.of(h))
	}
}
