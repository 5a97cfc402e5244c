package capture_test

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
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
	lost     uint32 // what was told
	holes    []hole
}

// hole is what is missing between two packets, from one sequence number to another.
type hole struct {
	from, to uint32
	lost     uint32 // what was told before the packet behind it
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

// read reads packets until enough says so, or none is left, and notes what is missing. (TCP sends
// again what the loopback loses; that is no hole in the end.)
func (s *stream) read(enough func() bool) {
	s.Helper()
	for !enough() {
		p, err := s.Read()
		if errors.Is(err, io.EOF) {
			return
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
		end := tcp.Seq + uint32(n)
		switch {
		case int32(tcp.Seq-s.next) > 0:
			s.holes = append(s.holes, hole{s.next, tcp.Seq, s.lost})
		case tcp.Seq != s.next:
			for i, h := range s.holes {
				if int32(tcp.Seq-h.from) <= 0 && int32(end-h.from) > 0 {
					s.holes[i].from = end
				}
			}
			s.holes = slices.DeleteFunc(s.holes, func(h hole) bool { return int32(h.to-h.from) <= 0 })
		}
		if int32(end-s.next) > 0 {
			s.next = end
		}
	}
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
		s.read(func() bool { return s.next-first > room })
		s.move(more)
		if err := s.End(); err != nil {
			t.Fatal(err)
		}
		s.read(func() bool { return false })
		if len(s.holes) > 0 != (snapLen == 0) {
			t.Errorf("snap length %d: holes %v after %d bytes that nobody read", snapLen, s.holes, tooMuch)
		}
		told := uint32(0)
		for _, h := range s.holes {
			if h.lost == told {
				t.Errorf("snap length %d: %d bytes are missing, and nothing is said to be lost", snapLen, h.to-h.from)
			}
			told = h.lost
		}
		if left, dropped := first+tooMuch+more-s.next, s.Dropped(); left != 0 || dropped != 0 {
			t.Errorf("snap length %d: the last %d bytes were not read, %d packets were dropped", snapLen, left, dropped)
		}
	}
}
