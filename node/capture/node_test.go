package capture_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
	"exnet/node"
	"exnet/node/capture"
	"exnet/node/tun"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func startCluster(t *testing.T) *node.Cluster {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
	c, err := node.StartCluster(node.ClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// begin captures all nodes of a cluster until the function that it returns is
// called.
func begin(t *testing.T, c *node.Cluster, cfg capture.Config) (cp *capture.Capture, end func() error) {
	t.Helper()
	for i, n := range c.Nodes {
		cfg.Interfaces = append(cfg.Interfaces, capture.Interface{Name: fmt.Sprintf("exn0/%d", 1+i), Description: n.String()})
	}
	cp, err := capture.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.Nodes {
		n.Interface.SetTap(cp.Tap(i))
	}
	return cp, func() error {
		for _, n := range c.Nodes {
			n.Interface.SetTap(nil)
		}
		return cp.Close()
	}
}

// transfer sends n bytes, a multiple of 5, by TCP from the first node to an address of the second.
func transfer(t *testing.T, c *node.Cluster, to netip.Addr, n int) {
	t.Helper()
	var l net.Listener
	if err := c.Namespace(1).Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- err
			return
		}
		defer conn.Close()
		m, err := io.Copy(io.Discard, conn)
		if err == nil && m != int64(n) {
			err = fmt.Errorf("%d bytes, want %d", m, n)
		}
		got <- err
	}()
	var conn net.Conn
	if err := c.Namespace(0).Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", l.Addr().String(), 30*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(bytes.Repeat([]byte("exnet"), n/5)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// settle waits until no more frames are on their way: the kernels end their
// connections after the programs.
func settle(cp *capture.Capture) {
	const quiet = 100 * time.Millisecond
	last := [2]capture.Stats{cp.Stats(0), cp.Stats(1)}
	for range 50 {
		time.Sleep(quiet)
		now := [2]capture.Stats{cp.Stats(0), cp.Stats(1)}
		if now == last && now[0].Lost()+now[1].Lost() == 0 {
			return
		}
		last = now
	}
}

// checksum adds up the pseudo header and the TCP segment of a packet; 0xffff is
// right.
func checksum(src, dst net.IP, segment []byte) uint16 {
	var sum uint32
	add := func(b []byte) {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
	}
	add(src)
	add(dst)
	add(binary.BigEndian.AppendUint32(nil, uint32(len(segment))))
	add([]byte{0, 6})
	add(segment)
	return uint16(sum)
}

// A capture of a TCP connection over two nodes is read by gopacket, tcpdump and
// tshark, and every checksum in it is right.
func TestRootCapture(t *testing.T) {
	c := startCluster(t)
	path := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cp, end := begin(t, c, capture.Config{Writer: f})
	const size = 1_000_000
	transfer(t, c, node.Addr4(1).Addr(), size)
	transfer(t, c, node.Addr6(1).Addr(), size)
	settle(cp)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for i := range c.Nodes {
		if s := cp.Stats(i); s.Frames < 40 || s.Lost() != 0 {
			t.Errorf("node %d: %+v", 1+i, s)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var segments, payload, packets [2]int
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packets[ci.InterfaceIndex]++
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := p.TransportLayer().(*layers.TCP)
		if !ok {
			continue
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		segment := append(bytes.Clone(tcp.Contents), tcp.Payload...)
		if sum := checksum(src.Raw(), dst.Raw(), segment); sum != 0xffff {
			t.Errorf("wrong checksum, by %#x: %v", sum, p)
		}
		segments[ci.InterfaceIndex]++
		if ci.InterfaceIndex == 1 && opts.Flags.Direction == pcapgo.NgEpbFlagDirectionInbound {
			payload[1] += len(tcp.Payload)
		}
		if ci.InterfaceIndex == 0 && opts.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound {
			payload[0] += len(tcp.Payload)
		}
	}
	if want := 2 * size; payload[0] < want || payload[1] < want {
		t.Errorf("the capture has %d bytes sent and %d received, want %d", payload[0], payload[1], want)
	}
	if segments[0] != segments[1] {
		t.Errorf("%d segments at node 1, %d at node 2", segments[0], segments[1])
	}
	all := packets[0] + packets[1]
	t.Run("tcpdump", func(t *testing.T) {
		out := program(t, "tcpdump", "-nn", "-v", "-r", path)
		if strings.Contains(out, "incorrect") || strings.Contains(out, "bad cksum") || !strings.Contains(out, "(correct)") {
			t.Errorf("checksums in the output of tcpdump:\n%.2000s", out)
		}
		if n := len(strings.Split(strings.TrimSpace(program(t, "tcpdump", "-nn", "-t", "-r", path)), "\n")); n < all {
			t.Errorf("tcpdump shows %d packets, want %d", n, all)
		}
	})
	t.Run("tshark", func(t *testing.T) {
		out := program(t, "tshark", "-o", "tcp.check_checksum:TRUE", "-r", path, "-Y", "tcp",
			"-T", "fields", "-e", "tcp.checksum.status", "-e", "frame.interface_name")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != segments[0]+segments[1] {
			t.Errorf("tshark shows %d segments, want %d", len(lines), segments[0]+segments[1])
		}
		for _, l := range lines {
			if l != "1\texn0/1" && l != "1\texn0/2" {
				t.Fatalf("checksum status and interface %q", l)
			}
		}
	})
}

// program runs a program that reads captures, or skips the test.
func program(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

// Traffic goes on as before while the writer blocks, and nothing of it is lost.
func TestRootCaptureBlocked(t *testing.T) {
	c := startCluster(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cp, end := begin(t, c, capture.Config{Writer: w, Queue: 1 << 20, Grace: 2 * time.Second})
	began := time.Now()
	transfer(t, c, node.Addr4(1).Addr(), 32_000_000)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("32 MB took %v", d)
	}
	if err := end(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if s := cp.Stats(0); s.Lost() == 0 {
		t.Errorf("%+v", s)
	}
}
