package capture_test

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"exnet/internal/netns/netnstest"
	"exnet/node/capture"
)

// stream is a TCP connection over the loopback of a namespace, and a Socket that sees its packets.
type stream struct {
	*testing.T
	*capture.Socket
	from, to net.Conn
	port     int
	next     uint32 // sequence number after the last packet of data
	lost     uint32 // what was told since the last gap
}

func newStream(t *testing.T, snapLen int) *stream {
	ns := netnstest.New(t)
	if err := ns.Run(exec.Command("ip", "link", "set", "lo", "up")); err != nil {
		t.Fatal(err)
	}
	s := &stream{T: t}
	if err := ns.Do(func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		s.port = l.Addr().(*net.TCPAddr).Port
		if s.Socket, err = capture.OpenSocket(uint16(s.port), snapLen); err != nil {
			return err
		}
		if s.from, err = net.Dial("tcp", l.Addr().String()); err != nil {
			return err
		}
		s.to, err = l.Accept()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); s.from.Close(); s.to.Close() })
	return s
}

// move moves n bytes, while nobody reads packets.
func (s *stream) move(n int64) {
	s.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, s.to, n)
		done <- err
	}()
	b := make([]byte, 1<<16)
	for left := n; left > 0; left -= int64(len(b)) {
		if _, err := s.from.Write(b[:min(left, int64(len(b)))]); err != nil {
			s.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		s.Fatal(err)
	}
}

// read reads packets until enough says so, or none is left. It fails if bytes are missing and
// nothing was said to be lost.
func (s *stream) read(enough func() bool) (gaps int) {
	s.Helper()
	for !enough() {
		p, err := s.Read()
		if errors.Is(err, io.EOF) {
			return gaps
		}
		if err != nil {
			s.Fatal(err)
		}
		s.lost += p.Lost
		g := gopacket.NewPacket(p.Data.AppendTo(nil), layers.LayerTypeIPv4, gopacket.Default)
		tcp, ok := g.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || p.Data.Len() > p.Length {
			s.Fatalf("%d of %d bytes: %v", p.Data.Len(), p.Length, g)
		}
		n := p.Length - len(g.NetworkLayer().LayerContents()) - len(tcp.Contents)
		if int(tcp.DstPort) != s.port {
			continue
		}
		if tcp.SYN {
			s.next = tcp.Seq + 1
		}
		if n == 0 {
			continue
		}
		if missing := int32(tcp.Seq - s.next); missing > 0 {
			if gaps++; s.lost == 0 {
				s.Fatalf("%d bytes are missing, and nothing is said to be lost", missing)
			}
			s.lost = 0
		}
		if end := tcp.Seq + uint32(n); int32(end-s.next) > 0 { // else it is sent again
			s.next = end
		}
	}
	return gaps
}

// What the kernel has no room for is told by the packet after the gap. What waits at the end is
// read: nothing is missing after it. Packets that are cut need so little room that none is lost.
func TestRootSocketGap(t *testing.T) {
	for _, snapLen := range []int{0, 100} {
		s := newStream(t, snapLen)
		const tooMuch, room, more = 256 << 20, 16 << 20, 1 << 20
		s.read(func() bool { return s.next != 0 })
		first := s.next
		s.move(tooMuch)
		if gaps := s.read(func() bool { return s.next-first > room }); gaps != 0 {
			t.Errorf("snap length %d: %d gaps among the first packets", snapLen, gaps)
		}
		s.move(more)
		if err := s.End(); err != nil {
			t.Fatal(err)
		}
		if gaps := s.read(func() bool { return false }); gaps > 0 != (snapLen == 0) {
			t.Errorf("snap length %d: %d gaps after %d bytes that nobody read", snapLen, gaps, tooMuch)
		}
		if left := first + tooMuch + more - s.next; left != 0 || s.Dropped() != 0 {
			t.Errorf("snap length %d: the last %d bytes were not read, %d packets were dropped", snapLen, left, s.Dropped())
		}
	}
}
