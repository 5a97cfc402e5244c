package tun_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
	"exnet/node/tun"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// require skips the test, and says why, unless it may make TUN devices.
func require(t testing.TB) {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
}

// openIn opens a device in the namespace, and closes it when the test ends.
func openIn(t testing.TB, n *netns.NS, cfg tun.Config) *tun.Device {
	t.Helper()
	require(t)
	var d *tun.Device
	if err := n.Do(func() (err error) { d, err = tun.Open(cfg); return }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// configure gives the device addresses and brings it up.
func configure(t testing.TB, n *netns.NS, d *tun.Device, addrs ...string) {
	t.Helper()
	c, err := hostnet.Open(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg := hostnet.LinkConfig{NoAutoLinkLocal: true, TxQueueLen: hostnet.TxQueueLen}
	for _, a := range addrs {
		cfg.Addrs = append(cfg.Addrs, netip.MustParsePrefix(a))
	}
	if err := errors.Join(c.LoopbackUp(), c.Configure(d.Index(), cfg)); err != nil {
		t.Fatal(err)
	}
}

// output runs a program in the namespace.
func output(t testing.TB, n *netns.NS, argv ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Run(cmd); err != nil {
		t.Errorf("%v: %v\n%s", argv, err, out.String())
	}
	return out.String()
}

func TestConfig(t *testing.T) {
	for _, cfg := range []tun.Config{
		{MTU: 67}, {MTU: 65536}, {MTU: -1},
		{Name: "sixteen-letters-"}, {Name: "a/b"}, {Name: "a b"}, {Name: "exn%d"}, {Name: "a:b"}, {Name: "."}, {Name: ".."}, {Name: "a\x00"},
	} {
		d, err := tun.Open(cfg)
		if !errors.Is(err, tun.ErrConfig) {
			t.Errorf("%+v: %v, want %v", cfg, err, tun.ErrConfig)
		}
		if err == nil {
			d.Close()
		}
	}
}

func TestRootOpen(t *testing.T) {
	for _, ownPoller := range []bool{false, true} {
		netnstest.CheckFDs(t)
		n := netnstest.New(t)
		d := openIn(t, n, tun.Config{Name: "exn7", MTU: 9000, OwnPoller: ownPoller})
		if d.Name() != "exn7" || d.MTU() != 9000 || d.Index() == 0 {
			t.Errorf("name %s, MTU %d, index %d", d.Name(), d.MTU(), d.Index())
		}
		off := d.Offload()
		if !off.Checksum || !off.TSO4 || !off.TSO6 {
			t.Errorf("offloads %+v", off)
		}
		t.Logf("offloads %+v", off)

		c, err := hostnet.Open(n)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if link, err := c.Link("exn7"); err != nil || link.Index != d.Index() || link.MTU != 9000 || link.Up {
			t.Errorf("the kernel has %+v, %v", link, err)
		}
		if flags, err := unix.FcntlInt(uintptr(d.Fd()), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("descriptor flags %#x, %v: not non-blocking", flags, err)
		}
		if flags, err := unix.FcntlInt(uintptr(d.Fd()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x, %v: programs inherit it", flags, err)
		}
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Link("exn7"); !errors.Is(err, hostnet.ErrNoLink) {
			t.Errorf("after Close: %v, want %v", err, hostnet.ErrNoLink)
		}
		if _, err := d.Read(make([]byte, tun.BufferLen)); !errors.Is(err, tun.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		if err := d.Write(make([]byte, tun.VnetHdrLen), foreign.Private(make([]byte, 20))); !errors.Is(err, tun.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
	}
}

func TestRootOpenDefaults(t *testing.T) {
	netnstest.CheckFDs(t)
	d := openIn(t, netnstest.New(t), tun.Config{})
	if d.Name() != "exn0" || d.MTU() != 65535 {
		t.Errorf("name %s, MTU %d", d.Name(), d.MTU())
	}
}

// Neither another device of ours nor a persistent one is taken over, and a
// failure leaves no descriptor.
func TestRootOpenTaken(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	openIn(t, n, tun.Config{Name: "exn0"})
	output(t, n, "ip", "tuntap", "add", "dev", "exn1", "mode", "tun", "vnet_hdr")
	for _, name := range []string{"exn0", "exn1", "lo"} {
		err := n.Do(func() error {
			d, err := tun.Open(tun.Config{Name: name})
			if err == nil {
				d.Close()
			}
			return err
		})
		if !errors.Is(err, tun.ErrNameTaken) || !strings.Contains(err.Error(), "ip link del "+name) {
			t.Errorf("%s: %v, want %v and what to do", name, err, tun.ErrNameTaken)
		}
	}
}

// udp4 makes an IPv4 UDP packet with the payload.
func udp4(src, dst string, payload []byte) []byte {
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(28+len(payload)))
	copy(p[12:16], netip.MustParseAddr(src).AsSlice())
	copy(p[16:20], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint16(p[20:], 9) // ports
	binary.BigEndian.PutUint16(p[22:], 9)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(payload)))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return append(p, payload...)
}

// send sends a UDP message of that size from the namespace to its network.
func send(t testing.TB, n *netns.NS, size int) {
	t.Helper()
	if err := n.Do(func() error {
		c, err := net.Dial("udp", "10.2.0.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, size))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestRootRead(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	buf := make([]byte, tun.BufferLen)
	if _, err := d.Read(buf); !errors.Is(err, tun.ErrAgain) {
		t.Errorf("nothing waits: %v, want %v", err, tun.ErrAgain)
	}
	configure(t, n, d, "10.2.0.1/24")
	send(t, n, 1000)
	size, err := d.Read(buf)
	if want := tun.VnetHdrLen + 28 + 1000; err != nil || size != want {
		t.Fatalf("%d bytes, %v; want %d", size, err, want)
	}
	// The header says that the checksum is left to do: flag NEEDS_CSUM, no
	// segmentation, checksum from byte 20 of the packet, to byte 6 from there.
	hdr, packet := buf[:tun.VnetHdrLen], buf[tun.VnetHdrLen:size]
	start, offset := binary.LittleEndian.Uint16(hdr[6:]), binary.LittleEndian.Uint16(hdr[8:])
	if hdr[0] != unix.VIRTIO_NET_HDR_F_NEEDS_CSUM || hdr[1] != unix.VIRTIO_NET_HDR_GSO_NONE || start != 20 || offset != 6 {
		t.Errorf("virtio-net header % x", hdr)
	}
	if packet[0] != 0x45 || packet[9] != unix.IPPROTO_UDP {
		t.Errorf("packet % x", packet[:28])
	}
	if _, err := d.Read(buf); !errors.Is(err, tun.ErrAgain) {
		t.Errorf("after the packet: %v, want %v", err, tun.ErrAgain)
	}
}

// The kernel would cut a packet that does not fit, in silence. So a buffer that
// may be too short is refused while the packet still waits.
func TestRootReadShort(t *testing.T) {
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d, "10.2.0.1/24")
	send(t, n, 1000)
	buf := make([]byte, tun.BufferLen)
	for _, short := range []int{0, tun.VnetHdrLen, tun.BufferLen - 1} {
		if _, err := d.Read(buf[:short]); !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("%d bytes: %v, want %v", short, err, io.ErrShortBuffer)
		}
	}
	if size, err := d.Read(buf); err != nil || size != tun.VnetHdrLen+28+1000 {
		t.Errorf("%d bytes, %v", size, err)
	}
}

// The longest packets there are fit: UDP at the largest MTU, over both.
func TestRootReadLongest(t *testing.T) {
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d, "10.2.0.1/24", "fd00:2::1/64")
	buf := make([]byte, tun.BufferLen)
	for addr, payload := range map[string]int{"10.2.0.2:9": tun.MaxMTU - 28, "[fd00:2::2]:9": tun.MaxMTU - 48} {
		if err := n.Do(func() error {
			c, err := net.Dial("udp", addr)
			if err == nil {
				_, err = c.Write(make([]byte, payload))
				c.Close()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if size, err := d.Read(buf); err != nil || size != tun.BufferLen {
			t.Errorf("%s: %d bytes, %v; want %d", addr, size, err, tun.BufferLen)
		}
	}
}

func TestRootWrite(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	hdr := make([]byte, tun.VnetHdrLen)
	packet := udp4("10.2.0.2", "10.2.0.1", []byte("hello"))
	if err := d.Write(hdr, foreign.Private(packet)); !errors.Is(err, tun.ErrDown) {
		t.Errorf("while down: %v, want %v", err, tun.ErrDown)
	}
	configure(t, n, d, "10.2.0.1/24")
	var conn *net.UDPConn
	if err := n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 2, 0, 1), Port: 9})
		return
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := d.Write(hdr, foreign.Private(packet)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	if size, from, err := conn.ReadFromUDPAddrPort(buf); err != nil || string(buf[:size]) != "hello" || from.Addr() != netip.MustParseAddr("10.2.0.2") {
		t.Errorf("%q from %v, %v", buf[:size], from, err)
	}

	for _, tt := range []struct {
		name        string
		hdr, packet []byte
	}{
		{"no header", nil, packet},
		{"short header", hdr[:9], packet},
		{"long header", make([]byte, 12), packet},
		{"no packet", hdr, nil},
		{"neither IPv4 nor IPv6", hdr, []byte{0x50, 0, 0, 0}},
		{"checksum outside", []byte{unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, 0, 0, 0, 0, 0xff, 0x7f, 6, 0}, packet},
		{"unknown segmentation", []byte{0, 0x7f, 40, 0, 100, 0, 20, 0, 6, 0}, packet},
		{"header longer than the packet", []byte{0, unix.VIRTIO_NET_HDR_GSO_TCPV4, 0xff, 0xff, 100, 0, 20, 0, 6, 0}, packet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := d.Write(tt.hdr, foreign.Private(tt.packet)); !errors.Is(err, tun.ErrMalformed) {
				t.Errorf("got %v, want %v", err, tun.ErrMalformed)
			}
		})
	}
	if err := d.Write(hdr, foreign.Private(packet)); err != nil {
		t.Errorf("a good packet after the bad ones: %v", err)
	}
}

func TestRootGone(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d)
	output(t, n, "ip", "link", "del", "exn0")
	if _, err := d.Read(make([]byte, tun.BufferLen)); !errors.Is(err, tun.ErrGone) {
		t.Errorf("read: %v, want %v", err, tun.ErrGone)
	}
	if err := d.Write(make([]byte, tun.VnetHdrLen), foreign.Private(make([]byte, 20))); !errors.Is(err, tun.ErrGone) {
		t.Errorf("write: %v, want %v", err, tun.ErrGone)
	}
}

// Close while others read, write and wait: they end, and the number of the
// descriptor is not used any more (CheckFDs and -race would tell).
func TestRootCloseWhileBusy(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	for range 10 {
		var d *tun.Device
		if err := n.Do(func() (err error) { d, err = tun.Open(tun.Config{}); return }); err != nil {
			t.Fatal(err)
		}
		configure(t, n, d, "10.2.0.1/24")
		var wg sync.WaitGroup
		started := make(chan struct{}, 2)
		wg.Go(func() {
			hdr, packet := make([]byte, tun.VnetHdrLen), udp4("10.2.0.2", "10.2.0.1", nil)
			started <- struct{}{}
			for {
				if err := d.Write(hdr, foreign.Private(packet)); err != nil {
					if !errors.Is(err, tun.ErrClosed) {
						t.Error("write:", err)
					}
					return
				}
			}
		})
		wg.Go(func() {
			r, err := newReader(d)
			if err != nil {
				t.Error(err)
			}
			started <- struct{}{}
			for buf := make([]byte, tun.BufferLen); err == nil; {
				_, err = r.read(buf)
			}
		})
		<-started
		<-started
		time.Sleep(time.Millisecond)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestRootAllocs(t *testing.T) {
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d, "10.2.0.1/24")
	hdr, packet, buf := make([]byte, tun.VnetHdrLen), udp4("10.2.0.2", "10.2.0.1", make([]byte, 100)), make([]byte, tun.BufferLen)
	if allocs := testing.AllocsPerRun(100, func() {
		if err := d.Write(hdr, foreign.Private(packet)); err != nil {
			t.Error(err)
		}
		_, _ = d.Read(buf) // ErrAgain, or the port's ICMP answer
	}); allocs != 0 {
		t.Errorf("%v allocations per packet", allocs)
	}
}

var errSkip = errors.New("cannot become another user")

// A user who may not open the device is told what to do.
func TestRootSupportedNotAllowed(t *testing.T) {
	require(t)
	if st, err := os.Stat("/dev/net/tun"); err != nil || st.Mode().Perm()&0o006 != 0 {
		t.Skip("everybody may open /dev/net/tun")
	}
	done := make(chan error)
	go func() {
		// The thread's file access is another user's from here on (setfsuid(2)),
		// so it is not unlocked and ends with the goroutine.
		runtime.LockOSThread()
		const nobody = 65534
		_ = unix.Setfsuid(nobody) // tells nothing
		if uid, err := unix.SetfsuidRetUid(-1); err != nil || uid != nobody {
			done <- errSkip
			return
		}
		done <- tun.Supported()
	}()
	err := <-done
	if err == errSkip {
		t.Skip(err)
	}
	if !errors.Is(err, tun.ErrUnavailable) || !strings.Contains(err.Error(), "chmod 666 /dev/net/tun") {
		t.Errorf("got %v, want %v and what to do", err, tun.ErrUnavailable)
	}
}

// A TAP device has an Ethernet header before each packet, and a smaller largest MTU.
func TestRootTAP(t *testing.T) {
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{TAP: true})
	if d.MTU() != tun.MaxFrameMTU || d.Offload() == (tun.Offload{}) {
		t.Errorf("MTU %d, offload %+v", d.MTU(), d.Offload())
	}
	configure(t, n, d, "10.2.0.1/24")
	if _, err := d.Read(make([]byte, tun.BufferLen)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("a buffer that is too short: %v", err)
	}
	var conn net.Conn
	if err := n.Do(func() (err error) { conn, err = net.Dial("udp", "10.2.0.2:9"); return }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	const etherTypeARP = 0x0806
	b := make([]byte, tun.FrameBufferLen)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, err := d.Read(b)
		if err == nil && binary.BigEndian.Uint16(b[tun.VnetHdrLen+12:]) == etherTypeARP {
			if want := tun.VnetHdrLen + tun.EthernetHeaderLen + 28; got != want {
				t.Errorf("an ARP request of %d bytes, want %d", got, want)
			}
			return
		}
		if err != nil && !errors.Is(err, tun.ErrAgain) || time.Now().After(deadline) {
			t.Fatalf("no ARP request: %v", err)
		}
	}
}

func TestTAPMTU(t *testing.T) {
	if _, err := tun.Open(tun.Config{TAP: true, MTU: tun.MaxFrameMTU + 1}); !errors.Is(err, tun.ErrConfig) {
		t.Errorf("got %v, want %v", err, tun.ErrConfig)
	}
}
