package pairing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"os"

	_ "exnet/internal/linux"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

const afInet = unix.AF_INET

// ErrUnsupported says that this kernel, or what this process may do, does not allow it.
var ErrUnsupported = errors.New("pairing: needs BPF and cgroup2, and root of the host")

// End is the server's end of a connection.
type End struct {
	Cookie uint64 // of its socket (SO_COOKIE), which no other socket of this host ever has
	Netns  uint64 // of its network namespace (SO_NETNS_COOKIE)
	// Local and Remote are its addresses, as it has them; IPv4 is not mapped into IPv6.
	Local, Remote netip.AddrPort
	// First are the sequence numbers of the first bytes of the client and of the server.
	First [2]uint32
}

// Pairs knows the pairs of this host's connections that were made since New.
type Pairs struct {
	maps
	program *ebpf.Program
	link    link.Link
}

// New begins to look at the connections of all processes below this process's cgroup namespace.
// Close ends it, unless dir says where what looks is pinned: then it goes on, and the next New with
// that dir knows the pairs of the time between them, too. dir is made on a BPF file system, and
// removing it ends it. ErrUnsupported: that cannot be here. ErrPin: not in that dir.
func New(dir string) (p *Pairs, err error) {
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps among locked memory
	p = &Pairs{}
	at := ""
	if dir != "" {
		if at, err = pinDir(dir); err != nil {
			return nil, err
		}
		p.maps, err = pinnedMaps(at)
	} else {
		p.maps, err = newMaps("")
	}
	if err != nil {
		return nil, markUnsupported(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(markUnsupported(err), p.Close())
			p = nil
		}
	}()
	if p.program, err = p.maps.writeProgram(); err != nil {
		return p, err
	}
	root, err := cgroupRoot()
	if err != nil {
		return p, err
	}
	defer root.Close()
	if at == "" {
		p.link, err = attachProgram(root, p.program)
		return p, err
	}
	if p.link, err = pinnedLink(at, root, p.program); err != nil {
		return p, err
	}
	return p, unpinOthers(at)
}

// attachProgram has a program see the handshakes below a cgroup.
func attachProgram(cgroup *os.File, program *ebpf.Program) (link.Link, error) {
	l, err := link.AttachCgroup(link.CgroupOptions{
		Path: fmt.Sprintf("/proc/self/fd/%d", cgroup.Fd()), Attach: ebpf.AttachCGroupSockOps, Program: program,
	})
	if err != nil {
		return nil, fmt.Errorf("pairing: cgroup: %w", err)
	}
	return l, nil
}

// markUnsupported marks an error that says that this host cannot.
func markUnsupported(err error) error {
	for _, no := range []error{unix.EPERM, unix.ENOSYS, unix.ENODEV, unix.EINVAL, unix.EOPNOTSUPP, ebpf.ErrNotSupported} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return err
}

// cgroupRoot opens the root of the unified hierarchy, which need not be mounted anywhere.
func cgroupRoot() (*os.File, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("pairing: cgroup2: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("pairing: cgroup2: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pairing: cgroup2: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	fd, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pairing: cgroup2: %w", err)
	}
	return os.NewFile(uintptr(fd), "cgroup2"), nil
}

// Close ends it. It is idempotent.
func (p *Pairs) Close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
		p.link = nil
	}
	if p.program != nil {
		_ = p.program.Close() // a descriptor of ours
	}
	p.maps.close()
	return err
}

// Server returns the server's end of the connection of a client's socket. false: it is not known,
// as on another host.
func (p *Pairs) Server(client uint64) (End, bool) {
	var v, again [pairLen]byte
	index := uint32(client % maxPairs)
	if p.pairs.Lookup(index, &v) != nil {
		return End{}, false
	}
	// It is read twice, as it may be written meanwhile: then it is another one's by now.
	if p.pairs.Lookup(index, &again) != nil || v != again || binary.NativeEndian.Uint64(v[pairChanges:])%2 != 0 {
		return End{}, false
	}
	e := End{Cookie: binary.NativeEndian.Uint64(v[pairCookie:]), Netns: binary.NativeEndian.Uint64(v[pairNetns:])}
	if e.Cookie == 0 || binary.NativeEndian.Uint64(v[pairClient:]) != client {
		return End{}, false
	}
	addr := func(off int) netip.Addr {
		if binary.NativeEndian.Uint32(v[pairFamily:]) == afInet {
			return netip.AddrFrom4([4]byte(v[off:]))
		}
		return netip.AddrFrom16([16]byte(v[off:])).Unmap()
	}
	e.Local = netip.AddrPortFrom(addr(pairLocalIP), uint16(binary.NativeEndian.Uint32(v[pairLocalPort:])))
	e.Remote = netip.AddrPortFrom(addr(pairRemoteIP), uint16(bits.ReverseBytes32(binary.NativeEndian.Uint32(v[pairRemotePort:]))))
	e.First = [2]uint32{binary.NativeEndian.Uint32(v[pairFirst:]), binary.NativeEndian.Uint32(v[pairFirst+4:])}
	return e, true
}

// Services yields the ports that were translated on the way lately: to which port clients
// connected, and where their servers listen.
func (p *Pairs) Services() iter.Seq2[uint16, uint16] {
	return func(yield func(port, at uint16) bool) {
		var s uint32
		var is uint8
		for it := p.services.Iterate(); it.Next(&s, &is); {
			if !yield(uint16(s), uint16(s>>16)) {
				return
			}
		}
	}
}
