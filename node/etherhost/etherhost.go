package etherhost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
	"exnet/internal/counter"
	"exnet/multicast"
)

// Link is what the Host needs of a network interface; exn.Interface is one.
type Link interface {
	MAC() [6]byte
	// Post takes buf and sends it.
	Post(buf *exteth.TxBuffer) error
	Free(buf *exteth.TxBuffer)
}

// Device is what it needs of a TAP device.
type Device interface {
	// Write writes one frame with its virtio-net header. It borrows both until return.
	Write(hdr []byte, frame foreign.Frame) error
}

// Config configures a Host.
type Config struct {
	Link   Link   // required
	Device Device // required
	// Groups is notified of which IP groups the hosts behind the device are members.
	// Default: nobody is, and reports leave as other frames.
	Groups multicast.Registry
}

// Stats are the counters of a Host.
type Stats struct {
	Tx                uint64 // frames of the host sent
	Rx                uint64 // frames handed to the host
	MembershipReports uint64 // reports, leave and done messages of IGMP and MLD, which went no further
	TxDropOffload     uint64 // dropped: offload metadata that does not fit the frame
	TxDropBusy        uint64 // dropped: the link had no room for the frame
	TxDropPeerDown    uint64 // dropped: the link cannot reach the frame's node (any more)
	TxDropLink        uint64 // dropped: the link refused the frame for another reason
	RxDropOffload     uint64 // dropped: offload metadata that does not fit the frame
	RxDropHost        uint64 // dropped: the host did not take the frame
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	Tx, Rx, MembershipReports, TxDropOffload, TxDropBusy, TxDropPeerDown, TxDropLink, RxDropOffload, RxDropHost atomic.Uint64
}

// Host is the host behind a TAP device, with what it bridges to the device.
type Host struct {
	cfg     Config
	members *multicast.Members // nil without Config.Groups
	count   counters

	mu     sync.Mutex
	timer  *time.Timer // +checklocks:mu
	closed bool        // +checklocks:mu
}

var _ exteth.Receiver = (*Host)(nil)

// New makes a Host. The caller has the link deliver to ReceiveFrame, and closes it.
func New(cfg Config) (*Host, error) {
	h := &Host{cfg: cfg}
	if cfg.Groups == nil {
		return h, nil
	}
	now := time.Now()
	var err error
	if h.members, err = multicast.NewMembers(multicast.Config{Registry: cfg.Groups, Shared: true}, now); err != nil {
		return nil, err
	}
	_, next := h.members.Tick(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(next.Sub(now), h.expireMemberships)
	return h, nil
}

// Stats returns the counters.
func (h *Host) Stats() (s Stats) {
	counter.Load(&h.count, &s)
	return s
}

// Close leaves all groups. It may be called more than once.
func (h *Host) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	if closed || h.members == nil {
		return nil
	}
	return h.members.Close()
}

// shift is by how much the offsets of a TAP device's metadata are larger than those of the
// fabric's.
const shift = exteth.EthernetHeaderLen

// FromHost sends a frame of the host. It takes buf, whose frame and offload metadata are
// set, as a TAP device gives them. The caller flushes the link after the last frame at hand.
func (h *Host) FromHost(buf *exteth.TxBuffer) {
	if !outward(&buf.Offload, len(buf.Packet())) {
		h.count.TxDropOffload.Add(1)
		h.cfg.Link.Free(buf)
		return
	}
	if h.isReport(buf) {
		h.count.MembershipReports.Add(1)
		h.cfg.Link.Free(buf)
		return
	}
	switch err := h.cfg.Link.Post(buf); {
	case err == nil:
		h.count.Tx.Add(1)
	case errors.Is(err, fabric.ErrAgain):
		h.count.TxDropBusy.Add(1)
	case errors.Is(err, fabric.ErrPeerDown), errors.Is(err, fabric.ErrNoRoute):
		h.count.TxDropPeerDown.Add(1)
	default:
		h.count.TxDropLink.Add(1)
	}
}

// ReceiveFrame takes in a frame from a node. It borrows frame until return and does not
// write to it. The error is the host's.
func (h *Host) ReceiveFrame(_ fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	if !inward(&off, frame.Len()-exteth.EthernetHeaderLen) {
		h.count.RxDropOffload.Add(1)
		return nil
	}
	return h.write(off, frame)
}

func (h *Host) write(off exteth.Offload, frame foreign.Frame) error {
	var hdr [exteth.OffloadLen]byte
	if err := h.cfg.Device.Write(off.AppendHost(hdr[:0]), frame); err != nil {
		h.count.RxDropHost.Add(1)
		return fmt.Errorf("frame of %d bytes to the host: %w", frame.Len(), err)
	}
	h.count.Rx.Add(1)
	return nil
}

// outward makes what a TAP device says about a frame what the fabric says about its packet of n
// bytes; false: it does not fit.
func outward(off *exteth.Offload, n int) bool {
	if off.Flags&exteth.OffloadNeedsChecksum != 0 {
		if off.CsumStart < shift {
			return false
		}
		off.CsumStart -= shift
	}
	if off.GSOType != exteth.GSONone {
		if off.HdrLen < shift {
			return false
		}
		off.HdrLen -= shift
	}
	return off.Check(n) == nil
}

// inward is the converse, for metadata that another node wrote.
func inward(off *exteth.Offload, n int) bool {
	const most = 1<<16 - 1 - shift
	if off.Check(n) != nil || off.CsumStart > most || off.HdrLen > most {
		return false
	}
	if off.Flags&exteth.OffloadNeedsChecksum != 0 {
		off.CsumStart += shift
	}
	if off.GSOType != exteth.GSONone {
		off.HdrLen += shift
	}
	return true
}

// EtherTypes, and where they are in a frame.
const (
	etherTypeOff  = 12
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
)

// isReport reports whether a frame that leaves is a membership report, which goes no further.
func (h *Host) isReport(buf *exteth.TxBuffer) bool {
	f := buf.Frame()
	if h.members == nil || !arp.MAC(f).IsMulticast() {
		return false
	}
	switch binary.BigEndian.Uint16(f[etherTypeOff:]) {
	case etherTypeIPv4, etherTypeIPv6:
		return h.members.Packet(time.Now(), buf.Packet())
	}
	return false
}

// expireMemberships does what is due for the memberships, and comes again.
func (h *Host) expireMemberships() {
	now := time.Now()
	query, next := h.members.Tick(now)
	if query {
		for _, q := range h.members.Queries(h.querier().LinkLocal()) {
			_ = h.write(exteth.Offload{}, foreign.Private(h.queryFrame(q))) // counted; the next one may get through
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.timer.Reset(next.Sub(now))
	}
}

// querier is the MAC address that queries come from. No node has it, as it is not one that
// is locally administered.
func (h *Host) querier() arp.MAC {
	const localBit = 0x02
	mac := arp.MAC(h.cfg.Link.MAC())
	mac[0] ^= localBit
	return mac
}

// queryFrame puts a query to an IP group into a frame.
func (h *Host) queryFrame(packet []byte) []byte {
	const v4DstOff, v6DstOff = 16, 24
	group, etherType := netip.AddrFrom4([4]byte(packet[v4DstOff:])), uint16(etherTypeIPv4)
	if packet[0]>>4 == 6 {
		group, etherType = netip.AddrFrom16([16]byte(packet[v6DstOff:])), etherTypeIPv6
	}
	to, err := arp.Multicast(group)
	if err != nil {
		to = arp.Broadcast()
	}
	from := h.querier()
	f := append(to[:], from[:]...)
	f = binary.BigEndian.AppendUint16(f, etherType)
	return append(f, packet...)
}
