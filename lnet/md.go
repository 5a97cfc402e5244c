package lnet

import (
	"errors"
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// Portals is how many portals an interface has.
const Portals = 64

// Options say what a memory descriptor permits, as bits.
type Options uint8

// The bits of Options.
const (
	OpPut        Options = 1 << iota // peers may Put into it (LNET_MD_OP_PUT)
	OpGet                            // peers may Get from it (LNET_MD_OP_GET)
	ManageRemote                     // the initiator chooses the offset (LNET_MD_MANAGE_REMOTE)
	AckDisable                       // a Put into it is never acknowledged (LNET_MD_ACK_DISABLE)
)

// Unlimited is the Threshold of a descriptor that is never used up (LNET_MD_THRESH_INF).
const Unlimited = -1

// MemoryDescriptor describes memory (lnet_md): Buffer, or the page list Pages.
type MemoryDescriptor struct {
	// Buffer is contiguous memory (kvec).
	Buffer []byte
	// Pages has at most MaxPages pages of atu.PageSize bytes, of memory of the NIC's
	// ATU().Alloc (lnet_kiov_t). The data begins First bytes into the first page, has Length
	// bytes, and ends in the last page.
	Pages         [][]byte
	First, Length int
	// Threshold is how many Puts and Gets the memory serves before it is unlinked, or
	// Unlimited. An ACK or REPLY belongs to its Put or Get.
	Threshold int
	Options   Options
	// Handler takes the events; nil takes none.
	Handler func(Event)
	// User is in every event (user_ptr).
	User any
}

func (d *MemoryDescriptor) size() int {
	if d.Pages != nil {
		return d.Length
	}
	return len(d.Buffer)
}

func (d *MemoryDescriptor) check() error {
	if d.Threshold == 0 || d.Threshold < Unlimited {
		return fmt.Errorf("lnet: threshold of %d; use a positive number or Unlimited", d.Threshold)
	}
	if d.Pages == nil {
		return nil
	}
	n := len(d.Pages)
	end := d.First + d.Length
	switch {
	case d.Buffer != nil:
		return errors.New("lnet: a descriptor has both a buffer and pages")
	case n > MaxPages:
		return fmt.Errorf("lnet: %d pages; at most %d", n, MaxPages)
	case d.First < 0 || d.First >= atu.PageSize || d.Length < 1 || d.Length > MaxPayload || end <= (n-1)*atu.PageSize || end > n*atu.PageSize:
		return fmt.Errorf("lnet: %d bytes from %d do not end in the last of %d pages", d.Length, d.First, n)
	}
	for _, p := range d.Pages {
		if len(p) != atu.PageSize {
			return fmt.Errorf("lnet: a page of %d bytes; each has %d", len(p), atu.PageSize)
		}
	}
	return nil
}

// registerPart makes n bytes from off accessible to the RMA unit.
func (d *MemoryDescriptor) registerPart(a *atu.ATU, v fabric.VPID, off, n int, access atu.Access) (*atu.Region, error) {
	if d.Pages == nil {
		return a.Register(v, d.Buffer[off:off+n:off+n], access)
	}
	first := d.First + off
	last := (first + n - 1) / atu.PageSize
	return a.RegisterPages(v, d.Pages[first/atu.PageSize:last+1], first%atu.PageSize, n, access)
}

// eachPiece calls f for the pieces of memory of n bytes from off.
func (d *MemoryDescriptor) eachPiece(off, n int, f func([]byte)) {
	if d.Pages == nil {
		f(d.Buffer[off : off+n])
		return
	}
	for at := d.First + off; n > 0; {
		p := d.Pages[at/atu.PageSize][at%atu.PageSize:]
		p = p[:min(n, len(p))]
		f(p)
		at, n = at+len(p), n-len(p)
	}
}

// MD is a memory descriptor of an interface (lnet_libmd), and its match entry if peers may use it.
type MD struct {
	ni     *NI
	desc   MemoryDescriptor
	portal int // -1 if bound
	match  Match

	// NI.mu guards the rest.
	offset    int // of the next operation, unless ManageRemote
	threshold int
	refs      int  // operations under way
	unlinked  bool // serves no new operation
}

// Match says which messages a match entry takes.
type Match struct {
	// From is the only initiator, unless Any.
	From fabric.NodeID
	Any  bool // LNET_NID_ANY
	// Bits are compared with the message's where Ignore has zeros.
	Bits, Ignore uint64
	// Before puts the entry before those that the portal has (LNET_INS_BEFORE).
	Before bool
}

// Bind makes memory known for Put and Get (LNetMDBind).
func (ni *NI) Bind(d MemoryDescriptor) (*MD, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return &MD{ni: ni, desc: d, portal: -1, threshold: d.Threshold}, nil
}

// Attach lets peers use memory: it adds a match entry with the memory to a portal (LNetMEAttach
// and LNetMDAttach).
func (ni *NI) Attach(portal int, m Match, d MemoryDescriptor) (*MD, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	switch {
	case portal < 0 || portal >= Portals:
		return nil, fmt.Errorf("lnet: portal %d; use 0 to %d", portal, Portals-1)
	case d.Options&(OpPut|OpGet) == 0:
		return nil, errors.New("lnet: a match entry's memory needs OpPut or OpGet")
	}
	md := &MD{ni: ni, desc: d, portal: portal, match: m, threshold: d.Threshold}
	ni.mu.Lock()
	defer ni.sendAndUnlock()
	at := len(ni.portals[portal])
	if m.Before {
		at = 0
	}
	ni.portals[portal] = slices.Insert(ni.portals[portal], at, md)
	return md, nil
}

// Unlink ends the use of a descriptor (LNetMDUnlink). If no operation is under way on it, an
// EventUnlink follows; else the last event of the last operation says Unlinked. The memory is
// in use until then.
func (d *MD) Unlink() {
	d.ni.mu.Lock()
	defer d.ni.sendAndUnlock()
	if d.unlinked {
		return
	}
	d.unlink()
	if d.refs == 0 {
		d.ni.queueEvent(d, Event{Type: EventUnlink, Unlinked: true})
	}
}

// unlink takes the descriptor and its match entry out of use. The caller holds mu.
func (d *MD) unlink() {
	d.unlinked = true
	if d.portal >= 0 {
		list := &d.ni.portals[d.portal]
		*list = slices.DeleteFunc(*list, func(o *MD) bool { return o == d })
	}
}

// beginOp begins an operation. The caller holds mu, and has seen that the descriptor is in use.
func (d *MD) beginOp() {
	d.refs++
	if d.threshold != Unlimited {
		if d.threshold--; d.threshold == 0 {
			d.unlink()
		}
	}
}

// endOp ends an operation, and reports whether the descriptor is out of use now. The caller
// holds mu.
func (d *MD) endOp() (unlinked bool) {
	d.refs--
	return d.unlinked && d.refs == 0
}

// matchMessage finds the memory for n bytes of a peer's message, and begins an operation on it;
// or returns nil. The caller holds mu.
func (ni *NI) matchMessage(p *peer, h Header, n int) *op {
	permission := OpPut
	if h.Type == MessageGet {
		permission = OpGet
	}
	if h.Portal >= Portals {
		return nil
	}
	for _, d := range ni.portals[h.Portal] {
		if d.desc.Options&permission == 0 || !d.match.Any && d.match.From != p.node ||
			(d.match.Bits^h.MatchBits)&^d.match.Ignore != 0 {
			continue
		}
		off := d.offset
		if d.desc.Options&ManageRemote != 0 {
			off = int(h.Offset)
		}
		if off > d.desc.size() || n > d.desc.size()-off {
			continue
		}
		d.offset = off + n
		d.beginOp()
		return &op{peer: p, md: d, hdr: h, target: true, event: Event{Peer: p.node,
			Portal: int(h.Portal), MatchBits: h.MatchBits, HdrData: h.HdrData, Length: n, Offset: off}}
	}
	return nil
}
