package relay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"exnet/directsockets/segment"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip"
	ipsum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// confirmed waits until the node knows that all has arrived that its programs have sent.
func (h *host) confirmed(t *testing.T) {
	t.Helper()
	until(t, "all has arrived", func() bool {
		list, err := h.engine.Connections()
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(list, func(c Connection) bool { return c.Waits != "" })
	})
}

// probeOf is a probe of the keep-alive as Linux sends it.
func probeOf(from, to netip.AddrPort) []byte {
	p := slices.Concat(packet4(from, to, tcpACK, 0), []byte{1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9})
	if from.Addr().Is6() {
		p = slices.Concat(packet6(from, to, tcpACK, 0), []byte{1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9})
		binary.BigEndian.PutUint16(p[ip6LenOff:], tcpLen+12)
	} else {
		binary.BigEndian.PutUint16(p[ip4LenOff:], uint16(len(p)))
	}
	t := header.TCP(p[len(p)-tcpLen-12:])
	t.SetDataOffset(tcpLen + 12)
	t.SetSequenceNumber(0xffff_ffff)
	t.SetAckNumber(5000)
	t.SetWindowSize(77)
	return p
}

func TestAnswerProbe(t *testing.T) {
	a6, b6 := netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:80")
	for _, c := range [][2]netip.AddrPort{{clientAddr, serverAddr}, {a6, b6}} {
		p := probeOf(c[0], c[1])
		tcp := answerProbe(p)
		if f, says := parsePacket(p); f != (flow{c[1], c[0]}) || says != saysSame {
			t.Errorf("%v: %v, %v", c, f, says)
		}
		h := header.TCP(p[tcp:])
		o := h.ParsedOptions()
		if h.SequenceNumber() != 5000 || h.AckNumber() != 0 || h.Flags() != header.TCPFlagAck || h.WindowSize() != 77 || o.TSVal != 9 || o.TSEcr != 7 {
			t.Errorf("%v: seq %d, ack %d, %v, window %d, %+v", c, h.SequenceNumber(), h.AckNumber(), h.Flags(), h.WindowSize(), o)
		}
		h.SetChecksum(^ipsum.Checksum(p[tcp:], 0)) // as who completes it does
		src, dst := tcpip.AddrFromSlice(c[1].Addr().AsSlice()), tcpip.AddrFromSlice(c[0].Addr().AsSlice())
		if !h.IsChecksumValid(src, dst, 0, 0) {
			t.Errorf("%v: a wrong checksum", c)
		}
	}
}

func FuzzAnswerProbe(f *testing.F) {
	f.Add(probeOf(clientAddr, serverAddr))
	f.Add(packet6(clientAddr, serverAddr, tcpACK, 0))
	f.Fuzz(func(t *testing.T, p []byte) {
		if from, says := parsePacket(p); says == saysSame {
			answerProbe(p)
			if back, says := parsePacket(p); back != (flow{from.to, from.from}) || says != saysSame {
				t.Errorf("%v, and its answer %v, %v", from, back, says)
			}
		}
	})
}

// A node answers the keep-alive of a shadow while what its program has sent may not have arrived,
// whether the link is there or not, and leaves it alone otherwise, as TCP has it.
func TestProbe(t *testing.T) {
	answers := make(chan fabric.NodeID, 1)
	hosts, cut, back := cutHosts(t, func(c *Config) {
		c.Answer = func(from fabric.NodeID, packet []byte, tcp int) {
			if f, _ := parsePacket(packet); f == (flow{serverAddr, clientAddr}) && tcp == ip4Len {
				answers <- from
			}
		}
	})
	client, server := joined(t, hosts, segment.Config{})
	e := hosts[0].engine
	answered := func(when string, want bool) {
		t.Helper()
		e.Probe(probeOf(clientAddr, serverAddr))
		done := make(chan struct{})
		if err := e.doLater(func() { close(done) }); err != nil { // after what Probe has left there
			t.Fatal(err)
		}
		<-done
		if got := len(answers) == 1; got != want {
			t.Errorf("%s: a probe is answered: %v", when, got)
		}
		if len(answers) == 1 {
			if from := <-answers; from != 2 {
				t.Errorf("%s: by node %d", when, from)
			}
		}
	}
	send1 := func() {
		t.Helper()
		if err := send(t, client, []byte{1}, true); err != nil {
			t.Fatal(err)
		}
	}
	hosts[0].confirmed(t)
	answered("all has arrived", false)
	goOn := hosts[1].pause(t)
	send1()
	answered("nothing was heard of the far kernel", false)
	if !e.Admits(2, packet4(serverAddr, clientAddr, tcpACK, 0)) {
		t.Error("an acknowledgement is kept out")
	}
	answered("the far node does not answer", true)
	e.Probe(packet4(clientAddr, serverAddr, tcpACK, 0)) // an acknowledgement: no byte before the next one
	e.Probe(packet4(clientAddr, serverAddr, 0x18, 1))
	e.Probe(packet4(clientAddr, serverAddr, tcpSYN|tcpACK, 0))
	e.Probe(packet4(serverAddr, clientAddr, tcpACK, 0))
	e.Probe(probeOf(clientAddr, serverAddr)[:ip4Len])
	goOn()
	hosts[0].confirmed(t)
	answered("the far node has answered", false)
	cut()
	answered("the link is away", false)
	send1()
	answered("something was sent meanwhile", true)
	back()
	hosts[0].confirmed(t)
	answered("the link is back", false)
	if got, err := receive(t, server, 2, true); err != nil || string(got) != "\x01\x01" {
		t.Errorf("%q, %v", got, err)
	}
	goOn = hosts[1].pause(t)
	send1()
	until(t, "it is sent", func() bool { return e.Stats().MessagesSent == 4 })
	if err := hosts[0].fabric.Detach(hosts[1].nic); err != nil {
		t.Fatal(err)
	}
	e.PeerDown(2)
	answered("the link is cut while something is under way", true)
	goOn()
}
