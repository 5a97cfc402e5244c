package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"exnet/exn"
	"exnet/exteth"
	"exnet/foreign"
	"exnet/internal/leaktest"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tcpFrame returns a TCP segment whose checksum is not computed yet, and one
// whose checksum is.
func tcpFrame(t testing.TB, payload int) (off exteth.Offload, unfinished, finished []byte) {
	t.Helper()
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 2, 0, 1}, DstIP: []byte{10, 2, 0, 2}}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true, Window: 100}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: []byte{0x2e, 0x87, 4, 7, 0, 1}, DstMAC: []byte{0x2e, 0x87, 4, 7, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
		ip, tcp, gopacket.Payload(bytes.Repeat([]byte{7}, payload))); err != nil {
		t.Fatal(err)
	}
	finished = bytes.Clone(buf.Bytes())
	unfinished = bytes.Clone(finished)
	// The field holds the sum of the pseudo header.
	sum := uint32(0x0a02+0x0001+0x0a02+0x0002+6) + uint32(20+payload)
	binary.BigEndian.PutUint16(unfinished[14+20+16:], uint16(sum+sum>>16))
	return exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}, unfinished, finished
}

// packet is what is read back.
type packet struct {
	gopacket.CaptureInfo
	data      []byte
	direction pcapgo.NgEpbFlag
	missed    uint64 // before it
}

// read reads a capture, with the statistics by interface.
func read(t *testing.T, r io.Reader) (packets []packet, names []string, stats map[int]pcapgo.NgInterfaceStatistics) {
	t.Helper()
	stats = make(map[int]pcapgo.NgInterfaceStatistics)
	ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{
		StatisticsCallback: func(i int, s pcapgo.NgInterfaceStatistics) { stats[i] = s },
	})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, opts, err := ng.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p := packet{CaptureInfo: ci, data: data, direction: opts.Flags.Direction}
		if opts.DropCount != nil {
			p.missed = *opts.DropCount
		}
		packets = append(packets, p)
	}
	for i := range ng.NInterfaces() {
		in, err := ng.Interface(i)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, in.Name)
	}
	return packets, names, stats
}

var twoInterfaces = []Interface{{Name: "exn0/1", Description: "node 1"}, {Name: "exn0/2"}}

// What was shown to the taps is read back: names, directions, times, bytes, with
// the checksum that was left out.
func TestCapture(t *testing.T) {
	var buf bytes.Buffer
	c, err := Start(Config{Writer: &buf, Interfaces: twoInterfaces})
	if err != nil {
		t.Fatal(err)
	}
	off, unfinished, finished := tcpFrame(t, 5000)
	before := bytes.Clone(unfinished)
	began := time.Now()
	c.Tap(0).Frame(exn.TX, off, foreign.Private(unfinished))
	c.Tap(1).Frame(exn.RX, off, foreign.Private(unfinished))
	c.Tap(1).Frame(exn.TX, exteth.Offload{}, foreign.Private(finished[:60]))
	// Metadata that does not fit, and a frame without a packet.
	c.Tap(1).Frame(exn.TX, off, foreign.Private(finished[:40]))
	c.Tap(1).Frame(exn.TX, off, foreign.Private(finished[:10]))
	if !bytes.Equal(unfinished, before) {
		t.Error("the tap wrote to the frame")
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Tap(0).Frame(exn.TX, off, foreign.Private(unfinished)) // too late
	packets, names, stats := read(t, &buf)
	if len(names) != 2 || names[0] != "exn0/1" || names[1] != "exn0/2" {
		t.Errorf("interfaces %q", names)
	}
	in, out := pcapgo.NgEpbFlagDirectionInbound, pcapgo.NgEpbFlagDirectionOutbound
	want := []struct {
		index     int
		direction pcapgo.NgEpbFlag
		data      []byte
	}{{0, out, finished}, {1, in, finished}, {1, out, finished[:60]}, {1, out, finished[:40]}, {1, out, finished[:10]}}
	if len(packets) != len(want) {
		t.Fatalf("%d packets, want %d", len(packets), len(want))
	}
	last := began
	for i, w := range want {
		p := packets[i]
		if p.InterfaceIndex != w.index || p.direction != w.direction || p.Length != len(w.data) || !bytes.Equal(p.data, w.data) {
			t.Errorf("packet %d: interface %d, direction %d, %d of %d bytes", i, p.InterfaceIndex, p.direction, len(p.data), p.Length)
		}
		if p.Timestamp.Before(last.Truncate(0)) || p.Timestamp.After(time.Now()) {
			t.Errorf("packet %d: time %v", i, p.Timestamp)
		}
		last = p.Timestamp
	}
	for i, n := range []uint64{1, 4} {
		if s := stats[i]; s.PacketsReceived != n || s.PacketsDropped != 0 || c.Stats(i).Frames != n || c.Stats(i).Written != n {
			t.Errorf("interface %d: %+v, %+v", i, s, c.Stats(i))
		}
	}
}

// A frame that is cut has the checksum of the whole.
func TestCaptureSnapLen(t *testing.T) {
	var buf bytes.Buffer
	c, err := Start(Config{Writer: &buf, Interfaces: twoInterfaces[:1], SnapLen: 100})
	if err != nil {
		t.Fatal(err)
	}
	off, unfinished, finished := tcpFrame(t, 5000)
	c.Tap(0).Frame(exn.RX, off, foreign.Private(unfinished))
	c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(finished))
	c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(finished[:50]))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	packets, _, _ := read(t, &buf)
	for i, n := range []int{100, 100, 50} {
		if p := packets[i]; !bytes.Equal(p.data, finished[:n]) || (n == 100 && p.Length != len(finished)) {
			t.Errorf("packet %d: %d of %d bytes", i, len(p.data), p.Length)
		}
	}
}

// A reader of a pipe sees a frame without waiting for the next.
func TestCaptureLive(t *testing.T) {
	r, w := io.Pipe()
	c, err := Start(Config{Writer: w, Interfaces: twoInterfaces[:1]})
	if err != nil {
		t.Fatal(err)
	}
	ng, err := pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(make([]byte, 60+i)))
		if data, _, err := ng.ReadPacketData(); err != nil || len(data) != 60+i {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	}
	defer w.Close() // ends the copying
	go io.Copy(io.Discard, r)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A writer that blocks loses frames to the capture and holds nobody up; what is
// lost is counted. Close does not wait for it for long.
func TestCaptureBlocked(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c, err := Start(Config{Writer: w, Interfaces: twoInterfaces[:1], Queue: 1 << 20, Grace: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 9000)
	const frames = 2000
	began := time.Now()
	for range frames {
		c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(frame))
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("%d frames took %v", frames, d)
	}
	if err := c.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if s := c.Stats(0); s.Frames != frames || s.Lost() < frames/2 {
		t.Errorf("%+v", s)
	}
}

// stuck is a writer that blocks and cannot be stopped.
type stuck struct{ release chan struct{} }

func (s stuck) Write(b []byte) (int, error) {
	<-s.release
	return len(b), nil
}

func TestCaptureStuck(t *testing.T) {
	w := stuck{make(chan struct{})}
	c, err := Start(Config{Writer: w, Interfaces: twoInterfaces[:1], Grace: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, ErrStalled) {
		t.Errorf("Close: %v", err)
	}
	close(w.release)
	<-c.Done()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A slow reader that comes back finds what was not lost, and the number of what
// was, at its place too.
func TestCaptureSlow(t *testing.T) {
	r, w := io.Pipe()
	c, err := Start(Config{Writer: w, Interfaces: twoInterfaces[:1], Queue: 100 * 1000})
	if err != nil {
		t.Fatal(err)
	}
	const frames = 500
	for range frames {
		c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(make([]byte, 1000)))
	}
	closed := make(chan error)
	go func() {
		for c.waiting.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
		c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(make([]byte, 1000)))
		err := c.Close()
		w.Close()
		closed <- err
	}()
	var tally Tally
	packets, _, stats := read(t, iotest.OneByteReader(io.TeeReader(r, &tally)))
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	n := uint64(len(packets))
	if !tally.Ended || tally.Frames != stats[0].PacketsReceived || tally.Lost() != stats[0].PacketsDropped {
		t.Errorf("the tally has %+v, the statistics are %+v", tally.Stats, stats[0])
	}
	if n < 90 || stats[0].PacketsReceived != frames+1 || stats[0].PacketsDropped != frames+1-n {
		t.Fatalf("%d packets, statistics %+v", n, stats[0])
	}
	var missed uint64 // the writer may have made room among the frames, too
	for _, p := range packets {
		missed += p.missed
	}
	if packets[0].missed != 0 || missed != stats[0].PacketsDropped {
		t.Errorf("%d are said to be missing, %d before the first", missed, packets[0].missed)
	}
}

// When nobody reads any more, the capture ends.
func TestCaptureReaderGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	c, err := Start(Config{Writer: w, Interfaces: twoInterfaces[:1]})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(make([]byte, 60)))
	if err := c.Close(); err == nil {
		t.Error("Close reports no error")
	}
}

func TestCaptureConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(Config{Writer: f, Interfaces: twoInterfaces})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 500 {
				frame := bytes.Repeat([]byte{byte(n)}, 60+n*7)
				c.Tap(i%2).Frame(exn.RX, exteth.Offload{}, foreign.Private(frame))
				clear(frame)
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packets, _, stats := read(t, f)
	if uint64(len(packets)) != 4000-stats[0].PacketsDropped-stats[1].PacketsDropped {
		t.Errorf("%d packets, %+v", len(packets), stats)
	}
	for _, p := range packets {
		if len(bytes.Trim(p.data, string(p.data[:1]))) != 0 || len(p.data) != 60+7*((len(p.data)-60)/7) {
			t.Fatal("a frame was changed after it was captured")
		}
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Writer: io.Discard},
		{Interfaces: twoInterfaces},
		{Writer: io.Discard, Interfaces: twoInterfaces, SnapLen: -1},
		{Writer: io.Discard, Interfaces: twoInterfaces, Queue: -1},
		{Writer: io.Discard, Interfaces: twoInterfaces, Grace: -1},
	} {
		if _, err := Start(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// What a capture costs the data path.
func BenchmarkFrame(b *testing.B) {
	for _, size := range []int{64, 1514, 65549} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c, err := Start(Config{Writer: io.Discard, Interfaces: twoInterfaces[:1]})
			if err != nil {
				b.Fatal(err)
			}
			frame := make([]byte, size)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				c.Tap(0).Frame(exn.RX, exteth.Offload{}, foreign.Private(frame))
			}
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
