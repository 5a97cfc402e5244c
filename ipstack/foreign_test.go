package ipstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/foreign"
	"exnet/internal/foreigntest"
	"exnet/internal/racetest"
)

// Whatever becomes of a frame, no byte of its sender's memory is read twice: every
// byte is another the second time.
func TestReceiveReadsOnce(t *testing.T) {
	tcp6 := ipSpec{
		src: "fd00::2", dst: "fd00::1", proto: protoTCP, extType: extDestOpts,
		options: append([]byte{protoTCP, 30, 1, 244}, make([]byte, 244)...), body: make([]byte, 4000),
	}
	tcp6.body[12] = 5 << 4
	frames := append(frameSeeds(),
		frameFrom(2, 1, etherTypeIPv4, tcpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, pattern(5000))),
		frameFrom(2, 1, etherTypeIPv4, udpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, pattern(5000))),
		frameFrom(2, 1, etherTypeIPv6, tcp6.packet()),
	)
	offs := []exteth.Offload{
		{},
		{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, GSOSize: 1000, CsumStart: 20, CsumOffset: 16},
		{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv6, GSOSize: 1000, CsumStart: 40 + 248, CsumOffset: 16},
	}
	for _, w := range newFuzzWorlds(t) {
		w.begin(t)
		for _, f := range frames {
			for _, off := range offs {
				for node, s := range map[byte]*Stack{1: w.a.Stack, 3: w.net} {
					f := bytes.Clone(f)
					f[5] = node
					sent := bytes.Clone(f)
					reads := foreigntest.Watch(t, foreigntest.Flip)
					if err := s.ReceiveFrame(2, off, lent(f)); err != nil {
						t.Error(err)
					}
					reads.Stop()
					if read, again := reads.Bytes(); read == 0 || again != 0 {
						t.Errorf("node %d, frame %x...: %d bytes read, %d of them again", node, sent[:ethHdrLen+20], read, again)
					}
					w.a.w.settle()
					for _, p := range w.a.host.take() {
						if _, n, ok := ipLen(p.packet, len(p.packet)); !ok || n != len(p.packet) || !checkOffload(p.off, p.packet, n) {
							t.Errorf("host got %x with %+v", p.packet, p.off)
						}
						if !bytes.HasPrefix(sent[ethHdrLen:], p.packet) {
							t.Errorf("host got %x, sent was %x", p.packet, sent[ethHdrLen:])
						}
					}
				}
			}
		}
	}
}

// evil is a node that changes a word of a frame all the time, and has its peer fetch
// the frame repeatedly.
type evil struct {
	velo *velo.Endpoint
	rma  *rma.Endpoint
	msg  []byte
	word *atomic.Uint32
}

// newEvil prepares a frame to node 0, of which the word at off is to change. off is 2
// more than a multiple of 4.
func newEvil(t *testing.T, n *nic.NIC, frame []byte, off int, o exteth.Offload) *evil {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var e evil
	var err error
	e.velo, err = n.OpenVELO(0, velo.Config{})
	must(err)
	e.rma, err = n.OpenRMA(0, rma.Config{})
	must(err)
	mem, err := n.ATU().Alloc(2 + len(frame))
	must(err)
	copy(mem[2:], frame)
	region, err := n.ATU().Register(0, mem, atu.Read)
	must(err)
	t.Cleanup(func() { _ = region.Close() })
	nla, err := region.Lend(0)
	must(err)
	e.msg, err = exteth.Advert{NLA: nla + 2, Length: uint32(len(frame)), Offload: o}.AppendBinary(nil)
	must(err)
	e.word = &foreign.Of(mem).Words32(2+off, 1)[0]
	return &e
}

// run advertises the frame n times, while the word changes between what it is and
// other.
func (e *evil) run(t *testing.T, n int, other uint32) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for own := e.word.Load(); !stop.Load(); {
			e.word.Store(other)
			e.word.Store(own)
			e.word.Store(own)
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	for end := time.Now().Add(time.Minute); n > 0; {
		for _, ok := e.rma.Next(); ok; _, ok = e.rma.Next() {
		}
		switch err := e.velo.Send(velo.Descriptor{VPID: 0, Type: exteth.TypeAdvert}, e.msg); {
		case err == nil:
			n--
			end = time.Now().Add(time.Minute)
		case !errors.Is(err, fabric.ErrAgain):
			t.Fatal(err)
		case time.Now().After(end):
			t.Fatalf("none of the last %d frames was taken within a minute", n)
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// A peer that changes its frames while they are received, over a link of shared
// memory, does its node no harm, and what gets through is in order.
func TestEvilPeer(t *testing.T) {
	frames := 10000
	if testing.Short() || racetest.Enabled {
		frames = 1000
	}
	udp := udpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, nil)
	broadcast := func(p []byte) []byte {
		f := frameFrom(1, 0, etherTypeIPv4, p)
		copy(f, bytes.Repeat([]byte{0xff}, 6))
		return f
	}
	unicast := func(p []byte) []byte { return frameFrom(1, 0, etherTypeIPv4, p) }
	short := ipSpec{src: "10.2.0.2", dst: "10.2.0.255", proto: protoUDP}.packet()
	tcp := tcpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, pattern(8000))
	for _, tt := range []struct {
		name  string
		frame []byte
		off   int
		value []byte // what stands at off now and then
		meta  exteth.Offload
	}{
		{"version of a broadcast", broadcast(short), 14, []byte{0x60}, exteth.Offload{}},
		{"version", unicast(udp), 14, []byte{0x60}, exteth.Offload{}},
		{"header length", unicast(udp), 14, []byte{0x4f}, exteth.Offload{}},
		{"total length", unicast(tcp), 14, []byte{0x45, 0, 0xff, 0xff}, exteth.Offload{}},
		{"protocol", unicast(udp), 22, []byte{64, protoIGMP}, exteth.Offload{}},
		{"address", broadcast(udp), 30, []byte{224, 0, 0, 1}, exteth.Offload{}},
		{"data offset of a segment", unicast(tcp), 46, []byte{0xf0}, exteth.Offload{
			Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, GSOSize: 7000, CsumStart: 20, CsumOffset: 16,
		}},
	} {
		for _, mode := range []string{"fast", "slow", "netstack"} {
			t.Run(tt.name+"/"+mode, func(t *testing.T) {
				testEvilPeer(t, mode, frames/max(1, len(tt.frame)/500), tt.frame, tt.off, tt.value, tt.meta)
			})
		}
	}
}

func testEvilPeer(t *testing.T, mode string, frames int, frame []byte, off int, value []byte, meta exteth.Offload) {
	nics := fabrictest.NewSHM(t, 2)
	own := binary.LittleEndian.Uint32(frame[off:])
	e := newEvil(t, nics[1], frame, off, meta)
	link, err := exn.New(exn.Config{NIC: nics[0]})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Link: link, NoFastPath: mode == "slow"}
	host := new(fakeHost)
	if mode != "netstack" {
		cfg.Host = host
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	link.SetReceiver(s)
	if err := s.AddAddress(mustPrefix("10.2.0.1/24")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- link.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-done, s.Close(), link.Close()); err != nil {
			t.Error(err)
		}
	}()
	other := binary.LittleEndian.AppendUint32(nil, own)
	copy(other, value)
	e.run(t, frames, binary.LittleEndian.Uint32(other))
	fabrictest.Eventually(t, "the last frame", func() bool {
		p := link.Stats().Port
		return p.RxRendezvous+p.RxRefused+p.RxGetFailed+p.RxExcess >= uint64(frames)
	})
	if p := link.Stats().Port; p.RxRendezvous == 0 {
		t.Errorf("no frame was received: %+v", p)
	}
	for _, p := range host.takeAll() {
		if _, n, ok := ipLen(p.packet, len(p.packet)); !ok || n != len(p.packet) || !checkOffload(p.off, p.packet, n) {
			t.Fatalf("host got %x with %+v", p.packet, p.off)
		}
	}
}
