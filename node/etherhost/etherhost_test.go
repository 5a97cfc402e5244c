package etherhost

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/foreign"
	"exnet/multicast"
)

// fake is a link and a device that keep what they get.
type fake struct {
	sent  []exteth.Offload
	freed int
	err   error // of the next

	hdr, frame []byte // the last one written
}

func (f *fake) MAC() [6]byte { return arp.DefaultPrefix().MAC(1) }

func (f *fake) Post(b *exteth.TxBuffer) error {
	f.sent = append(f.sent, b.Offload)
	return f.err
}

func (f *fake) Free(*exteth.TxBuffer) { f.freed++ }

func (f *fake) Write(hdr []byte, frame foreign.Frame) error {
	f.hdr, f.frame = bytes.Clone(hdr), frame.AppendTo(nil)
	return f.err
}

func newHost(t *testing.T, groups multicast.Registry) (*Host, *fake) {
	t.Helper()
	f := new(fake)
	h, err := New(Config{Link: f, Device: f, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return h, f
}

// buffer returns a buffer for frames.
func buffer(t *testing.T) *exteth.TxBuffer {
	t.Helper()
	card, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	port, err := exteth.Open(card, exteth.Config{MaxFrame: 2000, Buffers: 4, Receiver: (*Host)(nil)})
	if err != nil {
		t.Fatal(err)
	}
	b := port.Alloc()
	t.Cleanup(func() {
		port.Free(b)
		if err := errors.Join(port.Close(), card.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Offsets count from the Ethernet header for the device, and from the packet on the fabric.
func TestOffload(t *testing.T) {
	const partial = exteth.OffloadNeedsChecksum
	for _, c := range []struct {
		name         string
		device, wire exteth.Offload
		fits         bool
	}{
		{"nothing", exteth.Offload{}, exteth.Offload{}, true},
		{"verified", exteth.Offload{Flags: exteth.OffloadDataValid}, exteth.Offload{Flags: exteth.OffloadDataValid}, true},
		{"checksum", exteth.Offload{Flags: partial, CsumStart: 34, CsumOffset: 16}, exteth.Offload{Flags: partial, CsumStart: 20, CsumOffset: 16}, true},
		{"segments", exteth.Offload{Flags: partial, GSOType: exteth.GSOTCPv4, HdrLen: 66, GSOSize: 100, CsumStart: 34, CsumOffset: 16},
			exteth.Offload{Flags: partial, GSOType: exteth.GSOTCPv4, HdrLen: 52, GSOSize: 100, CsumStart: 20, CsumOffset: 16}, true},
		{"in the header", exteth.Offload{Flags: partial, CsumStart: 13}, exteth.Offload{}, false},
		{"behind the end", exteth.Offload{Flags: partial, CsumStart: 1013}, exteth.Offload{}, false},
		{"short header", exteth.Offload{Flags: partial, GSOType: exteth.GSOTCPv4, HdrLen: 13, GSOSize: 1, CsumStart: 34}, exteth.Offload{}, false},
		{"unknown", exteth.Offload{Flags: partial, GSOType: 9, HdrLen: 66, GSOSize: 1, CsumStart: 34}, exteth.Offload{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, f := newHost(t, nil)
			b := buffer(t)
			b.SetPacket(1000)
			b.Offload = c.device
			h.FromHost(b)
			if s := h.Stats(); (s.Tx == 1) != c.fits || (s.TxDropOffload == 1) == c.fits {
				t.Fatalf("%+v", s)
			}
			if !c.fits {
				if f.freed != 1 {
					t.Error("the buffer is lost")
				}
				return
			}
			if f.sent[0] != c.wire {
				t.Errorf("on the fabric %+v, want %+v", f.sent[0], c.wire)
			}
			frame := make([]byte, 1014)
			frame[500] = 1
			if err := h.ReceiveFrame(2, c.wire, foreign.Private(frame)); err != nil {
				t.Fatal(err)
			}
			if want := c.device.AppendHost(nil); !bytes.Equal(f.hdr, want) || !bytes.Equal(f.frame, frame) {
				t.Errorf("header % x, want % x; %d bytes of frame", f.hdr, want, len(f.frame))
			}
		})
	}
}

// What another node wrote is checked before it is used.
func TestOffloadHostile(t *testing.T) {
	h, f := newHost(t, nil)
	const partial = exteth.OffloadNeedsChecksum
	for i, off := range []exteth.Offload{
		{Flags: partial, CsumStart: 65534, CsumOffset: 2},
		{Flags: partial, CsumStart: 990, CsumOffset: 9},
		{GSOType: exteth.GSOTCPv4, GSOSize: 100},
		{Flags: partial, GSOType: exteth.GSOTCPv4, GSOSize: 0},
		{Flags: partial, GSOType: exteth.GSOTCPv4, GSOSize: 1, HdrLen: 65535},
		{GSOType: 77},
	} {
		if err := h.ReceiveFrame(2, off, foreign.Private(make([]byte, 1014))); err != nil || f.frame != nil {
			t.Errorf("%+v: %v, written: %v", off, err, f.frame != nil)
		}
		if n := h.Stats().RxDropOffload; n != uint64(1+i) {
			t.Errorf("%+v: %d dropped", off, n)
		}
	}
	// A large frame's offset would not fit when it is counted from the header.
	big := exteth.Offload{Flags: partial, CsumStart: 65525}
	if err := h.ReceiveFrame(2, big, foreign.Private(make([]byte, 14+65535))); err != nil || f.frame != nil {
		t.Errorf("%+v: %v", big, err)
	}
}

func TestErrors(t *testing.T) {
	h, f := newHost(t, nil)
	b := buffer(t)
	b.SetPacket(100)
	for _, err := range []error{fabric.ErrAgain, fabric.ErrPeerDown, fabric.ErrNoRoute, errors.New("another")} {
		f.err = fmt.Errorf("link: %w", err)
		h.FromHost(b)
	}
	if err := h.ReceiveFrame(2, exteth.Offload{}, foreign.Private(make([]byte, 60))); err == nil {
		t.Error("the host took nothing, and there is no error")
	}
	if got, want := h.Stats(), (Stats{TxDropBusy: 1, TxDropPeerDown: 2, TxDropLink: 1, RxDropHost: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// registry counts.
type registry struct{ joined map[netip.Addr]bool }

func (r *registry) Join(g netip.Addr) (fabric.GroupID, error) { r.joined[g] = true; return 1, nil }
func (r *registry) Leave(g netip.Addr) error                  { delete(r.joined, g); return nil }
func (r *registry) Lookup([]byte) (fabric.GroupID, bool)      { return 1, true }

// Reports of the host end here, and queries ask for them.
func TestMembers(t *testing.T) {
	reg := &registry{joined: make(map[netip.Addr]bool)}
	h, f := newHost(t, reg)
	b := buffer(t)
	// IGMPv2 report for 239.1.2.3 (RFC 2236): IP header without options.
	report := []byte{
		0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3,
		0x16, 0, 0xf9, 0xf9, 239, 1, 2, 3,
	}
	report[22], report[23] = 0xf9, 0xf9 // set below
	sum := 0
	for i := 20; i < 28; i += 2 {
		if i != 22 {
			sum += int(report[i])<<8 | int(report[i+1])
		}
	}
	sum = ^(sum>>16 + sum&0xffff)
	report[22], report[23] = byte(sum>>8), byte(sum)
	frame := append([]byte{1, 0, 0x5e, 1, 2, 3, 2, 0, 0, 0, 0, 1, 8, 0}, report...)
	copy(b.Mem()[exteth.Headroom-exteth.EthernetHeaderLen:], frame)
	b.SetPacket(len(report))
	h.FromHost(b)
	group := netip.MustParseAddr("239.1.2.3")
	if !reg.joined[group] || len(f.sent) != 0 || f.freed != 1 || h.Stats().MembershipReports != 1 {
		t.Errorf("joined %v, %d sent, %d freed, %+v", reg.joined, len(f.sent), f.freed, h.Stats())
	}
	b.Mem()[exteth.Headroom-exteth.EthernetHeaderLen+etherTypeOff] = 0x81 // a VLAN's
	h.FromHost(b)
	if len(f.sent) != 1 {
		t.Error("a tagged frame was not sent")
	}
	if err := h.Close(); err != nil || len(reg.joined) != 0 {
		t.Errorf("%v; after Close in %v", err, reg.joined)
	}
}

func TestQueryFrames(t *testing.T) {
	h, _ := newHost(t, &registry{joined: make(map[netip.Addr]bool)})
	queries := h.members.Queries(h.querier().LinkLocal())
	if len(queries) != 2 {
		t.Fatalf("%d queries", len(queries))
	}
	for i, want := range []string{"01005e000001 2c8704070001 0800", "333300000001 2c8704070001 86dd"} {
		f := h.queryFrame(queries[i])
		if got := fmt.Sprintf("%x %x %x", f[:6], f[6:12], f[12:14]); got != want || !bytes.Equal(f[14:], queries[i]) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	now := time.Now()
	h.expireMemberships() // before anything is due
	if d := time.Since(now); h.Stats().Rx != 0 {
		t.Errorf("a query after %v", d)
	}
}
