package tcpbench

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
)

// connections makes n of the net package's, which has both ends of each.
func connections(t *testing.T, n int) (clients, servers []io.ReadWriteCloser) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		clients, servers = append(clients, c), append(servers, s)
	}
	return clients, servers
}

func TestStreamOver(t *testing.T) {
	for _, streams := range []int{1, 3} {
		netnstest.CheckFDs(t)
		clients, servers := connections(t, streams)
		spec := StreamSpec{Spec: shortSpec(), Streams: streams}
		r, err := StreamOver(spec, clients, servers)
		if err != nil || r.Bytes <= 0 || r.Elapsed < spec.Duration || r.Elapsed > 5*time.Second || r.CPU <= 0 {
			t.Errorf("%d streams: %+v, %v", streams, r, err)
		}
	}
}

func TestPingPongOver(t *testing.T) {
	netnstest.CheckFDs(t)
	clients, servers := connections(t, 1)
	r, err := PingPongOver(PingPongSpec{shortSpec()}, clients[0], servers[0])
	if err != nil || r.RoundTrips.Quantile(0.5) < time.Microsecond || r.CPU <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOverErrors: the connections are closed whatever happens.
func TestOverErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	clients, servers := connections(t, 2)
	if _, err := StreamOver(StreamSpec{}, clients, servers); err == nil || !strings.Contains(err.Error(), "bad job") {
		t.Errorf("stream of nothing: %v", err)
	}
	clients, servers = connections(t, 1)
	if _, err := PingPongOver(PingPongSpec{}, clients[0], servers[0]); err == nil || !strings.Contains(err.Error(), "bad job") {
		t.Errorf("ping-pong of nothing: %v", err)
	}
	clients, servers = connections(t, 1)
	servers[0].Close()
	if _, err := StreamOver(StreamSpec{Spec: shortSpec(), Streams: 1}, clients, servers); err == nil {
		t.Error("no error from a stream without a receiver")
	}
}
