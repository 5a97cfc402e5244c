package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/node/control"
)

// webPort is where direct sockets go through the fabric.
const webPort = "8080"

// needShow skips the test without what show runs.
func needShow(t *testing.T) {
	t.Helper()
	needRun(t, "iperf3", "ping", "python3", "redis-benchmark", "redis-server", "tcpdump")
}

// show is what users do with three hosts that are linked: everything works, is seen, and a cut
// cable heals. server is the address by which the web server is asked: node 2's.
func (s *site) show(link, server string) {
	s.t.Helper()
	for _, pair := range [][2]int{{1, 2}, {2, 3}, {3, 1}} {
		s.pings(pair[0], pair[1])
	}
	s.datagram(1, 3, "239.1.2.3")
	s.datagram(3, 2, "10.2.0.255")
	a, c := &host{ns: s.hosts[0]}, &host{ns: s.hosts[2]}
	const size = 8 << 20
	r := a.startIperf(s.t, c, "10.2.0.3", iperfPort, "--bidir", "-n", strconv.Itoa(size))()
	if r.End.SumReceived.Bytes == 0 || r.End.ReverseReceive.Bytes == 0 { // not all is counted: see TestRootIperf
		s.t.Errorf("nothing received: %+v", r.End)
	}
	s.redis(a, c)
	eventually(s.t, func() error {
		for n, p := range s.peers(1) {
			if p.Link != link || p.RTTMicros == 0 || p.TxRate == 0 || p.RxRate == 0 || p.Endpoint == "" || p.Key == "" {
				return fmt.Errorf("node %d: %+v", n, p)
			}
		}
		return nil
	})
	s.web(server)
	s.cut()
}

// redis has host a use a Redis server on host c.
func (s *site) redis(a, c *host) {
	s.t.Helper()
	const port = "6379"
	server := c.start(s.t, "redis-server", "--bind", "10.2.0.3", "--protected-mode", "no", "--port", port, "--save", "", "--dir", s.dir)
	server.listens(s.t, port)
	out := a.run(s.t, "redis-benchmark", "-h", "10.2.0.3", "-p", port, "-n", "1000", "-c", "10", "-d", "1000", "-t", "set,get", "-q")
	if strings.Count(out, "requests per second") != 2 {
		s.t.Errorf("redis-benchmark says %s", out)
	}
	server.stop()
}

// web has a program under exn-run on host 1 ask a Go server on host 2: unchanged programs, whose
// bytes go through the fabric, and are in the counters, in topo and in a capture.
func (s *site) web(addr string) {
	s.t.Helper()
	server := startIn(s.t, s.hosts[1], nil, filepath.Join(s.bin, "web"), ":"+webPort)
	server.says(s.t, "listening")
	file := filepath.Join(s.t.TempDir(), "capture")
	capture := startIn(s.t, s.hosts[1], nil, s.exnTun, "capture", "--dir", s.home(2), "-w", file)
	eventually(s.t, func() error {
		if st, err := os.Stat(file); err != nil || st.Size() == 0 {
			return fmt.Errorf("no capture: %v", err)
		}
		return nil
	})
	exnRun, err := buildExnRun()
	if err != nil {
		s.t.Fatal(err)
	}
	in, more, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	defer more.Close()
	const most = 1 << 20
	sent, link := s.count(2, "relay.bytes_sent"), s.carried(2, 1)
	client := startIn(s.t, s.hosts[0], in, "env", awaitBroker, exnRun, "--explain", "--", "python3", "testdata/fabric/web.py", addr, webPort)
	client.until(s.t, "bytes through the fabric", func() bool { return s.count(2, "relay.bytes_sent") >= sent+most })
	if err := more.Close(); err != nil {
		s.t.Error(err)
	}
	// exn-run may say first that it builds its library.
	if out := client.wait(s.t); !strings.Contains("\n"+out, "\nok ") || !strings.Contains(out, "through the fabric") {
		s.t.Errorf("the client says %s", out)
	}
	eventually(s.t, func() error {
		if n := s.count(1, "relay.connections") + s.count(2, "relay.connections"); n != 0 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
	if err := capture.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Error(err)
	}
	capture.wait(s.t)
	sent = s.count(2, "relay.bytes_sent") - sent
	if got := captured(s.t, file); got != sent {
		s.t.Errorf("the capture has %d bytes, %d went through the fabric", got, sent)
	}
	if out, err := exec.Command("tcpdump", "-nn", "-r", file, "tcp src port "+webPort).CombinedOutput(); err != nil || !strings.Contains(string(out), addr) {
		s.t.Errorf("tcpdump: %v\n%.500s", err, out)
	}
	if got := s.carried(2, 1) - link; got < sent {
		s.t.Errorf("topo has %d more bytes on the link, direct sockets sent %d", got, sent)
	}
	server.stop()
}

// carried is how many bytes went from a node to another, as topo says on host 1.
func (s *site) carried(from, to int) uint64 {
	s.t.Helper()
	var all struct{ Links []control.TopologyLink }
	if err := json.Unmarshal([]byte(s.in(s.hosts[0], s.exnTun, "topo", "--dir", s.home(1), "--json")), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, l := range all.Links {
		switch {
		case int(l.A) == from && int(l.B) == to:
			return l.AB.Bytes
		case int(l.B) == from && int(l.A) == to:
			return l.BA.Bytes
		}
	}
	s.t.Fatalf("topo has no link of %d and %d: %+v", from, to, all)
	return 0
}

// cut cuts the cable of host 3, and mends it.
func (s *site) cut() {
	s.t.Helper()
	s.in(s.router, "ip", "link", "set", "r3", "down")
	began := time.Now()
	s.linked(false, 1, 3)
	s.linked(false, 2, 3)
	s.t.Logf("a cut was noticed by both sides after %v", time.Since(began).Round(100*time.Millisecond))
	s.linked(true, 1, 2)
	s.in(s.router, "ip", "link", "set", "r3", "up")
	began = time.Now()
	s.linked(true, 1, 2, 3)
	s.t.Logf("it healed after %v", time.Since(began).Round(100*time.Millisecond))
	s.pings(1, 3)
}
