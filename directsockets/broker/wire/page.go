package wire

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"exnet/internal/shm"
)

// Layout of the page (SPEC.md, 6.2).
const (
	pageMagic = "EXTDSPG\x01"

	pageVersionOff    = 8  // uint32, then the generation: one word of 64 bits
	pageUDPOpenOff    = 16 // uint32: open offers of UDP
	pageListenersOff  = 64
	pageOffersOff     = pageListenersOff + 65536*2 // uint16 for each port
	offerWords        = 4096
	pageReceiversOff  = (pageOffersOff + offerWords*4 + shm.PageSize - 1) / shm.PageSize * shm.PageSize // uint16 for each UDP port
	pageUsed          = pageReceiversOff + 65536*2
	PageSize          = (pageUsed + shm.PageSize - 1) / shm.PageSize * shm.PageSize // of the file
	maxListenersShown = 1<<15 - 1
	deepBit           = 1 << 15
)

// DeepSlots and DeepRing are the least sizes of the segment of a connection whose port is Deep: no
// more messages and bytes are on their way between two hosts.
const (
	DeepSlots = 4096
	DeepRing  = 4 << 20
)

// memory is a segment of a page: the broker's own, or a client's mapping of it.
type memory interface {
	Fd() int
	Retire()
}

// Page is what all clients of a broker can see. It is written in the broker only.
//
// Concurrency: Listener and Word may be called from many goroutines; the rest is
// the Server's, under its lock.
type Page struct {
	seg       memory
	head      *atomic.Uint64  // version, generation
	listeners []atomic.Uint64 // four ports in each
	offers    []atomic.Uint64 // two buckets in each
	receivers []atomic.Uint64 // four UDP ports in each
	udpOpen   *atomic.Uint64  // open offers of UDP
	open      []uint32        // open offers of each bucket; nil unless it is the broker's
}

// NewPage makes an empty page.
func NewPage() (*Page, error) {
	seg, err := shm.Create("exn-ds-page", PageSize)
	if err != nil {
		return nil, err
	}
	p := viewPage(seg, func(off, n int) []atomic.Uint64 { return shm.Words(seg.Bytes(), off, n) })
	p.open = make([]uint32, offerWords)
	var magic [8]byte
	copy(magic[:], pageMagic)
	shm.Words(seg.Bytes(), 0, 1)[0].Store(binary.LittleEndian.Uint64(magic[:]))
	p.head.Store(Version)
	return p, nil
}

// MapPage maps the page of a broker. It borrows fd.
func MapPage(fd int) (*Page, error) {
	seg, err := shm.Map(fd, PageSize)
	if err != nil {
		return nil, err
	}
	var magic [len(pageMagic)]byte
	if seg.Memory().CopyTo(magic[:]); string(magic[:]) != pageMagic {
		seg.Retire()
		return nil, fmt.Errorf("%w: the page begins with %q", ErrMessage, magic)
	}
	p := viewPage(seg, seg.Memory().Words)
	if v := uint32(p.head.Load()); v != Version {
		seg.Retire()
		return nil, fmt.Errorf("%w: the page has version %d, this is %d", ErrMessage, v, Version)
	}
	return p, nil
}

// viewPage makes the view of a page, of which words gives n at off.
func viewPage(seg memory, words func(off, n int) []atomic.Uint64) *Page {
	return &Page{
		seg:       seg,
		head:      &words(pageVersionOff, 1)[0],
		listeners: words(pageListenersOff, 65536/4),
		offers:    words(pageOffersOff, offerWords/2),
		receivers: words(pageReceiversOff, 65536/4),
		udpOpen:   &words(pageUDPOpenOff, 1)[0],
	}
}

// Fd is the descriptor of the page's file, which it keeps.
func (p *Page) Fd() int { return p.seg.Fd() }

// Close gives the broker's page back.
func (p *Page) Close() { p.seg.Retire() }

// Unmap gives a page of MapPage back, and leaves that of a broker in this process.
func (p *Page) Unmap() {
	if p.open == nil {
		p.seg.Retire()
	}
}

// Listener reports whether a direct listener at this TCP port can be reached, in
// this namespace or on another node.
func (p *Page) Listener(port uint16) bool {
	return p.Listeners(port) != 0
}

// Listeners is how many there are at this port, up to 32767.
func (p *Page) Listeners(port uint16) uint16 { return p.listenersWord(port) &^ deepBit }

// Deep reports whether one of them is on another host, where the fabric leads to.
func (p *Page) Deep(port uint16) bool { return p.listenersWord(port)&deepBit != 0 }

func (p *Page) listenersWord(port uint16) uint16 {
	return uint16(p.listeners[port/4].Load() >> (port % 4 * 16))
}

// Word is the word of a bucket: bits 0..15 open offers, bits 16..31 count up on
// every new one.
func (p *Page) Word(bucket uint32) uint32 {
	bucket %= offerWords
	return uint32(p.offers[bucket/2].Load() >> (bucket % 2 * 32))
}

// Generation counts the changes of the table of listeners.
func (p *Page) Generation() uint32 { return uint32(p.head.Load() >> 32) }

// SetListeners shows how many listeners a port has; deep: see Deep.
func (p *Page) SetListeners(port uint16, n int, deep bool) {
	w, shift := &p.listeners[port/4], port%4*16
	shown := uint64(min(n, maxListenersShown))
	if deep {
		shown |= deepBit
	}
	w.Store(w.Load()&^(0xffff<<shift) | shown<<shift)
	p.head.Store(p.head.Load() + 1<<32)
}

// AddOffer shows a new offer, which can be claimed already.
func (p *Page) AddOffer(bucket uint32) {
	p.open[bucket]++
	p.setWord(bucket, p.Word(bucket)+1<<16)
}

// RemoveOffer shows that one is gone.
func (p *Page) RemoveOffer(bucket uint32) {
	p.open[bucket]--
	p.setWord(bucket, p.Word(bucket))
}

// setWord stores the number of open offers, and the count of w.
func (p *Page) setWord(bucket, w uint32) {
	w = w&^0xffff | min(p.open[bucket], 0xffff)
	to, shift := &p.offers[bucket/2], bucket%2*32
	to.Store(to.Load()&^(0xffffffff<<shift) | uint64(w)<<shift)
}

// Receiver reports whether a socket at this UDP port takes flows.
func (p *Page) Receiver(port uint16) bool {
	return uint16(p.receivers[port/4].Load()>>(port%4*16)) != 0
}

// SetReceivers shows how many sockets at a UDP port take flows.
func (p *Page) SetReceivers(port uint16, n int) {
	w, shift := &p.receivers[port/4], port%4*16
	w.Store(w.Load()&^(0xffff<<shift) | uint64(min(n, maxListenersShown))<<shift)
}

// FlowsOpen reports whether there is an open offer of UDP.
func (p *Page) FlowsOpen() bool { return uint32(p.udpOpen.Load()) != 0 }

// AddFlow shows a new offer of UDP, which can be claimed already.
func (p *Page) AddFlow(port uint16) {
	p.udpOpen.Store(p.udpOpen.Load() + 1)
	p.AddOffer(UDPBucket(port))
}

// RemoveFlow shows that one is gone.
func (p *Page) RemoveFlow(port uint16) {
	p.RemoveOffer(UDPBucket(port))
	p.udpOpen.Store(p.udpOpen.Load() - 1)
}
