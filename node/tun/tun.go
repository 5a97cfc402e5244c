package tun

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"exnet/foreign"
	"exnet/internal/netns"

	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"
)

const (
	// VnetHdrLen is the length of the virtio-net header before each packet.
	VnetHdrLen = 10

	// MaxPacketLen is the length of the longest packet: the largest MTU that
	// Linux gives a TUN device and the longest segment it puts into one.
	MaxPacketLen = 65535

	// BufferLen is the length of a buffer that holds any packet with its header.
	BufferLen = VnetHdrLen + MaxPacketLen

	// FrameBufferLen is BufferLen for a TAP device: it has room for the Ethernet header and a
	// VLAN tag.
	FrameBufferLen = BufferLen + EthernetHeaderLen + vlanTagLen

	// EthernetHeaderLen is the length of the header before each packet of a TAP device.
	EthernetHeaderLen = 6 + 6 + 2
	vlanTagLen        = 4

	// MinMTU is the smallest MTU of an interface (RFC 791: 68). IPv6 works from
	// 1280 upwards (RFC 8200, section 5).
	MinMTU = 68

	// MaxMTU is the largest MTU of a TUN device, and the default.
	MaxMTU = 65535

	// MaxFrameMTU is the largest MTU of a TAP device.
	MaxFrameMTU = MaxMTU - EthernetHeaderLen

	// DefaultName is the name of the interface if Config names none.
	DefaultName = "exn0"
)

// Config describes the interface to make.
type Config struct {
	Name string // default DefaultName
	MTU  int    // MinMTU..MaxMTU; default the largest

	// TAP makes a TAP device: an Ethernet interface, with a MAC address from the kernel.
	TAP bool

	// OwnPoller leaves the descriptor out of the Go runtime's poller, for a
	// caller that waits on Fd itself: in two pollers, every packet would wake
	// both. SyscallConn then cannot wait. Default: the runtime's poller.
	OwnPoller bool

	// Left is the descriptor of an interface that another process has left, with its addresses, its
	// routes and the packets that wait in it. Open takes the descriptor, and the interface if that
	// is here, has the name, and is of the kind that Config describes. Default: a new interface.
	Left *os.File
}

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	largest := MaxMTU
	if c.TAP {
		largest = MaxFrameMTU
	}
	if c.MTU == 0 {
		c.MTU = largest
	}
	// The kernel's dev_valid_name, and no '%', which makes it a pattern.
	if len(c.Name) >= unix.IFNAMSIZ || c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/:%\x00 \t\n\v\f\r") {
		return c, fmt.Errorf("tun: %w: interface name %q: use at most %d letters and digits", ErrConfig, c.Name, unix.IFNAMSIZ-1)
	}
	if c.MTU < MinMTU || c.MTU > largest {
		return c, fmt.Errorf("tun: %w: MTU %d: must be %d to %d", ErrConfig, c.MTU, MinMTU, largest)
	}
	return c, nil
}

// Offload says what the kernel may leave to the reader of the device.
type Offload struct {
	Checksum bool // packets without their TCP or UDP checksum
	TSO4     bool // TCP segments longer than the MTU, IPv4
	TSO6     bool // the same, IPv6
	USO      bool // the same for UDP with UDP_SEGMENT, both (Linux 6.2)
}

// Device is an open TUN device, or TAP device.
//
// Concurrency: all methods may be called from many goroutines.
type Device struct {
	name    string
	mtu     int
	tap     bool
	index   int
	offload Offload

	// mu is held for reading around every system call on fd, so that Close cannot free the
	// number for another file meanwhile. These calls never sleep.
	mu     sync.RWMutex
	closed bool
	fd     int
	file   *os.File // owns fd
}

// Open makes the interface in the network namespace of the calling thread. It is
// down and has no address, unless another process has left it (Config.Left).
func Open(c Config) (*Device, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Device{name: c.Name, mtu: c.MTU, tap: c.TAP}
	if c.Left == nil || !d.takeOver(c.Left) {
		if err := d.createInterface(); err != nil {
			return nil, err
		}
	}
	fd := d.fd
	if c.OwnPoller { // os.NewFile leaves blocking descriptors out of the poller
		d.file = os.NewFile(uintptr(fd), clonePath)
	}
	err = d.negotiateOffloads()
	if !c.OwnPoller {
		d.file = os.NewFile(uintptr(fd), clonePath)
	}
	if err != nil {
		d.file.Close()
		return nil, fmt.Errorf("tun: setting up %s: %w", c.Name, err)
	}
	return d, nil
}

// createInterface makes an interface.
func (d *Device) createInterface() (err error) {
	if d.fd, err = openClone(); err != nil {
		return err
	}
	if err := d.attachInterface(); err != nil {
		unix.Close(d.fd)
		return err
	}
	return nil
}

// takeOver makes the interface of f, which it closes, the device's. False: it does not fit.
func (d *Device) takeOver(f *os.File) bool {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var dupErr error
	err = raw.Control(func(fd uintptr) { d.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil || dupErr != nil {
		return false
	}
	if !d.matchesConfig() {
		unix.Close(d.fd)
		return false
	}
	return true
}

// matchesConfig reports whether the interface of fd is the one that Config describes.
func (d *Device) matchesConfig() bool {
	ifr, err := unix.NewIfreq(d.name)
	if err != nil || unix.IoctlIfreq(d.fd, unix.TUNGETIFF, ifr) != nil { // a user has removed it
		return false
	}
	const kinds = unix.IFF_TUN | unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE
	if ifr.Uint16()&kinds != d.kindFlags() || ifr.Name() != d.name {
		return false
	}
	ns, _, err := d.Where()
	if err != nil {
		return false
	}
	defer ns.Close()
	var here unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &here) == nil && here.Ino == ns.Inode()
}

// kindFlags is the flags of the interface.
func (d *Device) kindFlags() uint16 {
	kind := uint16(unix.IFF_TUN)
	if d.tap {
		kind = unix.IFF_TAP
	}
	return kind | unix.IFF_NO_PI | unix.IFF_VNET_HDR
}

// attachInterface makes the interface and gives it to fd.
func (d *Device) attachInterface() error {
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return fmt.Errorf("tun: %s: %w", d.name, err)
	}
	// Without IFF_TUN_EXCL a persistent device of that name would be taken over.
	ifr.SetUint16(d.kindFlags() | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(d.fd, unix.TUNSETIFF, ifr); err != nil {
		return attachError(d.name, err)
	}
	return nil
}

// negotiateOffloads lets wireguard negotiate the offloads, and sets what wireguard does not.
func (d *Device) negotiateOffloads() error {
	// wireguard sets properties of the device, not of the descriptor. So it gets a duplicate,
	// and closes that.
	dup, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	wg, _, err := wgtun.CreateUnmonitoredTUNFromFD(dup)
	if err != nil {
		return err // its file has a finalizer that closes dup
	}
	if err := wg.Close(); err != nil {
		return err
	}
	d.offload = Offload{Checksum: true, TSO4: true, TSO6: true}
	// wireguard does not say whether the kernel took the UDP bits: ask again.
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	const udp = unix.TUN_F_USO4 | unix.TUN_F_USO6
	d.offload.USO = unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, tcp|udp) == nil

	size, err := unix.IoctlGetInt(d.fd, unix.TUNGETVNETHDRSZ)
	if err != nil {
		return err
	}
	if size != VnetHdrLen {
		return fmt.Errorf("virtio-net header of %d bytes, want %d", size, VnetHdrLen)
	}
	// The header is little endian by request, not only where the host is.
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETLE, 1); err != nil {
		return err
	}
	return d.configureMTU()
}

// configureMTU sets the MTU and learns the index.
func (d *Device) configureMTU() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return err
	}
	ifr.SetUint32(uint32(d.mtu))
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFMTU, ifr); err != nil {
		return fmt.Errorf("MTU %d: %w", d.mtu, err)
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFINDEX, ifr); err != nil {
		return err
	}
	d.index = int(ifr.Uint32())
	return nil
}

// Name returns the name the interface was made with. A user can change it
// (ip link set name); Index is what stays.
func (d *Device) Name() string { return d.name }

// MTU returns the MTU the interface was made with. A user can change it; package hostnet
// reports changes.
func (d *Device) MTU() int { return d.mtu }

// Index returns the index that the interface was made with. It can change when a user moves the
// interface to another namespace.
func (d *Device) Index() int { return d.index }

// Where returns the network namespace in which the interface is now, and its name there. The caller
// closes the namespace. The errors are ErrGone, ErrClosed, and those of TUNGETDEVNETNS: the kernel
// is older than 5.7, or another user namespace owns the namespace.
func (d *Device) Where() (*netns.NS, string, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return nil, "", ErrClosed
	}
	ifr, err := unix.NewIfreq(d.name)
	if err != nil {
		return nil, "", err
	}
	if err := unix.IoctlIfreq(d.fd, unix.TUNGETIFF, ifr); err != nil {
		return nil, "", whereError(err)
	}
	fd, err := unix.IoctlRetInt(d.fd, unix.TUNGETDEVNETNS)
	if err != nil {
		return nil, "", whereError(err)
	}
	return netns.From(os.NewFile(uintptr(fd), d.name)), ifr.Name(), nil
}

// whereError maps the errors of the ioctls.
func whereError(err error) error {
	if errors.Is(err, unix.EBADFD) { // detached
		return ErrGone
	}
	return fmt.Errorf("tun: finding the interface's namespace: %w", err)
}

// Offload returns what was negotiated with the kernel.
func (d *Device) Offload() Offload { return d.offload }

// Fd returns the descriptor to wait on. It is non-blocking, and valid until
// Close. In the runtime's poller (Config.OwnPoller is false) wait through
// SyscallConn instead.
func (d *Device) Fd() int { return d.fd }

// SyscallConn returns a connection that waits for packets in the runtime's poller. The poller
// reports changes, not states, so the call that may find nothing belongs into the callback:
//
//	err := raw.Read(func(uintptr) bool {
//		n, readErr = device.Read(buf)
//		return readErr != tun.ErrAgain
//	})
func (d *Device) SyscallConn() (syscall.RawConn, error) { return d.file.SyscallConn() }

// Dup returns another descriptor of the device, for the process that is to take it over. As long as
// one is open, the interface stays.
func (d *Device) Dup() (fd int, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return -1, ErrClosed
	}
	return unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// Read reads one packet into b, the virtio-net header first, and returns the
// length of both. It borrows b until return. b must have BufferLen bytes, for a TAP
// device, where a packet begins with its Ethernet header, FrameBufferLen (else
// io.ErrShortBuffer): the kernel cuts what does not fit and does not say so. The
// errors are ErrAgain, ErrGone, ErrClosed.
func (d *Device) Read(b []byte) (int, error) {
	if len(b) < BufferLen || d.tap && len(b) < FrameBufferLen {
		return 0, io.ErrShortBuffer
	}
	d.mu.RLock()
	if d.closed {
		d.mu.RUnlock()
		return 0, ErrClosed
	}
	n, errno := rawRead(d.fd, b)
	d.mu.RUnlock()
	if errno != 0 {
		return 0, readError(errno)
	}
	return n, nil
}

// Write writes one packet, with its virtio-net header of VnetHdrLen bytes. It borrows both
// until return, and does not copy them together. The private part of the packet cannot change
// before the kernel sees it. The errors are ErrAgain, ErrDown, ErrMalformed, ErrGone,
// ErrClosed.
func (d *Device) Write(hdr []byte, packet foreign.Frame) error {
	if len(hdr) != VnetHdrLen || packet.Len() == 0 {
		return ErrMalformed
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return ErrClosed
	}
	if errno := packet.RawWritev(d.fd, hdr); errno != 0 {
		return writeError(errno)
	}
	return nil
}

// Close removes the interface, unless another process has it (Dup). It is idempotent.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	// Not under the lock: the file waits for the callbacks of SyscallConn, which
	// call Read.
	if err := d.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("tun: closing %s: %w", d.name, err)
	}
	return nil
}
