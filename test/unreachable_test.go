package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/node"
)

// A host that is not there is reported as unreachable, as on Ethernet: when the
// neighbour has not answered three times, a second apart (RFC 4861, section
// 10). Afterwards it can appear.
func TestRootUnreachable(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		l.explain("ipstack.tx_drop_unreachable", "ipstack.netstack_tx_errors", "ipstack.icmp_errors")
		a, b := l.hosts[0], l.hosts[1]
		absent := map[family]netip.Addr{4: netip.MustParseAddr("10.2.0.99"), 6: netip.MustParseAddr("fd00:10:2::99")}
		behind := map[family]netip.Addr{4: netip.MustParseAddr("10.98.0.1"), 6: netip.MustParseAddr("fd98::1")}

		// All at a time, since each takes three seconds.
		type attempt struct {
			fam  family
			ping *process
			dial chan error
		}
		var attempts []attempt
		start := time.Now()
		for _, fam := range []family{4, 6} {
			a.run(t, "ip", fam.flag(), "route", "add", behind[fam].String(), "via", absent[fam].String())
			for _, to := range []netip.Addr{absent[fam], behind[fam]} {
				at := attempt{fam: fam, ping: a.start(t, append(pingArgs(3, 56), to.String())...), dial: make(chan error, 1)}
				go func() { at.dial <- a.dial(to) }()
				attempts = append(attempts, at)
			}
		}
		for _, at := range attempts {
			if err := <-at.dial; !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("dial: got %v, want %v", err, syscall.EHOSTUNREACH)
			}
			<-at.ping.done
			want := pick(at.fam, "Destination Host Unreachable", "Destination unreachable: Address unreachable")
			if got := strings.Count(at.ping.out.String(), want); at.ping.err == nil || got != 3 {
				t.Errorf("%s: %d of 3 times %q\n%s", at.ping.name, got, want, &at.ping.out)
			}
		}
		t.Logf("known after %v", time.Since(start).Round(time.Millisecond))

		for _, fam := range []family{4, 6} {
			if err := a.dial(fam.of(b)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("nobody listens: got %v, want %v", err, syscall.ECONNREFUSED)
			}
			b.run(t, "ip", "addr", "add", fmt.Sprintf("%v/%d", absent[fam], pick(fam, 24, 64)), "dev", ifname)
			a.pingable(t, absent[fam])
		}
	})
}

// dial tries to connect to a port that nobody listens on.
func (h *host) dial(to netip.Addr) error {
	return h.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, 9).String(), hangTime)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// pingable waits until to answers, while changes of addresses and routes make
// their way to the nodes.
func (h *host) pingable(t *testing.T, to netip.Addr) {
	t.Helper()
	eventually(t, func() error {
		out, err := h.try(t, "ping", "-n", "-c", "1", "-W", "1", to.String())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}
