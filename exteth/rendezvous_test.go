package exteth

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// Equations 5.1 and 5.2, for every length around the multiples of the RMA MTU:
// both sides match the notification of a transfer with it, whatever else is
// under way.
func TestMatching(t *testing.T) {
	net := newNet(t, 2, Config{EagerThreshold: MinEagerThreshold})
	a, b := net.nodes[0], net.nodes[1]
	pr := a.peers.peerOf(b.id)
	for _, size := range sizes() {
		if size <= MinEagerThreshold {
			continue
		}
		if err := a.Send(b.id, a.buf(t, size)); err != nil {
			t.Fatal(err)
		}
		rest := atu.NLA(size % 496)
		if rest == 0 {
			rest = 496
		}
		for last, buf := range pr.lent {
			start := buf.region.NLA() + Headroom - EthernetHeaderLen
			if want := start + atu.NLA(size) - rest; last != want {
				t.Errorf("%d bytes: kept at %v, want %v", size, last, want)
			}
		}
		if len(pr.lent) != 1 {
			t.Fatalf("%d buffers are lent", len(pr.lent))
		}
		net.settle()
	}
	if a.Stats().Unmatched != 0 || b.Stats().Unmatched != 0 {
		t.Errorf("unmatched notifications: %d and %d", a.Stats().Unmatched, b.Stats().Unmatched)
	}
	net.checkIdle()
}

// Notifications that match nothing, or come twice, are counted and ignored
// (frame-format.md, section 5.1).
func TestUnmatched(t *testing.T) {
	net := newNet(t, 2, Config{})
	raw, node, b := net.addRaw(), net.nodes[0], net.nodes[1]
	if err := node.Send(raw.id, node.buf(t, 1000)); err != nil {
		t.Fatal(err)
	}
	var ad Advert
	if err := ad.UnmarshalBinary(raw.receive()[0].payload); err != nil {
		t.Fatal(err)
	}
	var unmatched uint64
	expect := func(name string, lent int64) {
		t.Helper()
		net.settle()
		if s := node.Stats(); s.Unmatched != unmatched || s.RxRendezvous != 0 || s.RxGetFailed != 0 {
			t.Errorf("%s: %d unmatched, want %d", name, s.Unmatched, unmatched)
		}
		if got := node.outstanding.Load(); got != lent {
			t.Errorf("%s: %d buffers lent, want %d", name, got, lent)
		}
	}
	// Parts of the frame only: their last packets are not the frame's.
	for _, n := range []int{1, 100, 496, 992} {
		if _, st := raw.get(node.id, ad.NLA, n); st != fabric.StatusOK {
			t.Fatal(st)
		}
		unmatched++
		expect("a part of the frame", 1)
	}
	if _, st := raw.get(node.id, ad.NLA+496, 504); st != fabric.StatusOK {
		t.Fatal(st)
	}
	// From another start, the last packet is another one, too: 496+496.
	expect("the frame's end", 0)
	// The buffer is free, and the address out of date.
	if _, st := raw.get(node.id, ad.NLA, 1000); st != fabric.StatusProtection {
		t.Errorf("GET after the loan: %v", st)
	}
	expect("after the loan", 0)

	// A PUT into memory of the VPID, and its notification, are not EXN's.
	reg, err := node.Port.nic.ATU().Register(0, make([]byte, 100), atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	nla, err := reg.Lend(raw.id)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.rma.PutImmediate(rma.PutImmediateReq{
		Len: 9, Remote: nla, Node: node.id, Notify: rma.NotifyRequester | rma.NotifyCompleter,
	}); err != nil {
		t.Fatal(err)
	}
	unmatched++
	expect("a PUT", 0)

	// Nothing of this hurts anybody.
	buf := node.buf(t, 1000)
	want := bytes.Clone(buf.Frame())
	if err := node.Send(b.id, buf); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), node.id, want)
	net.checkIdle()
}

// The completer's notification for a window matches only a transfer that is
// under way in it, with that node, of that length.
func TestSinkMatch(t *testing.T) {
	net := newNet(t, 2, Config{})
	node := net.nodes[0]
	s := &node.sink
	pr := node.peers.peerOf(2)
	tr := s.takeTransfer(pr)
	tr.length = 1000
	last := rma.LastFragment(s.addressOf(tr), 1000)
	good := rma.Notification{Writer: rma.Completer, Command: rma.CommandGet, Node: 2, Len: 1000, Local: last}
	for _, tt := range []struct {
		name   string
		change func(*rma.Notification)
		match  bool
	}{
		{"its own", func(n *rma.Notification) {}, true},
		{"another node", func(n *rma.Notification) { n.Node = 3 }, false},
		{"another packet", func(n *rma.Notification) { n.Local -= 496 }, false},
		{"another window", func(n *rma.Notification) { n.Local -= MaxFrame }, false},
		{"below the sink", func(n *rma.Notification) { n.Local = s.region.NLA() - 496 }, false},
		{"beyond the sink", func(n *rma.Notification) { n.Local = s.region.NLA() + MaxTransfers*MaxFrame }, false},
		{"another generation", func(n *rma.Notification) { n.Local += 1 << 40 }, false},
		{"address 0", func(n *rma.Notification) { n.Local = 0 }, false},
	} {
		n := good
		tt.change(&n)
		if got := s.matchTransfer(n); (got == tr) != tt.match || (got == nil) == tt.match {
			t.Errorf("%s: %v", tt.name, got != nil)
		}
	}
	s.putTransfer(tr)
	if s.matchTransfer(good) != nil {
		t.Error("a transfer that is over matches")
	}
	// What still comes into the window afterwards is refused.
	if _, err := s.WriteAt(foreign.Of(make([]byte, 10)), int64(tr.window)*MaxFrame); !errors.Is(err, errNoTransfer) {
		t.Errorf("write to a free window: %v", err)
	}
}

// A peer that does not fetch a frame in time loses it: its GET comes too late
// and finds the buffer closed, and another frame in it unharmed.
func TestTransferTimeout(t *testing.T) {
	net := newNet(t, 2, Config{TransferTimeout: time.Minute, Buffers: 1})
	raw, node, b := net.addRaw(), net.nodes[0], net.nodes[1]
	if err := node.Send(raw.id, node.buf(t, 5000)); err != nil {
		t.Fatal(err)
	}
	node.Expire()
	if s := node.Stats(); s.TxTimeout != 0 || node.free() != 0 {
		t.Fatalf("expired at once: %d", s.TxTimeout)
	}
	if node.Alloc() != nil {
		t.Fatal("there is a second buffer")
	}
	node.epoch = node.epoch.Add(-time.Minute) // its clock goes on
	node.Expire()
	if node.buffer != 1 {
		t.Errorf("OnBuffer was called %d times", node.buffer)
	}
	buf := node.buf(t, 5000)
	want := bytes.Clone(buf.Frame())
	if err := node.Send(b.id, buf); err != nil {
		t.Fatal(err)
	}
	var ad Advert
	if err := ad.UnmarshalBinary(raw.receive()[0].payload); err != nil {
		t.Fatal(err)
	}
	if _, st := raw.get(node.id, ad.NLA, 5000); st != fabric.StatusProtection {
		t.Errorf("late GET: %v, want %v", st, fabric.StatusProtection)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), node.id, want)
	checkStats(t, node.Stats(), map[string]uint64{
		"tx_rendezvous": 2, "tx_bytes": 10000, "tx_timeout": 1, "tx_no_buffer": 1,
	})
	net.checkIdle()
}

// A peer holds an eighth of the buffers at most, and its senders are woken when
// half of that is free again.
func TestPeerShare(t *testing.T) {
	net := newNet(t, 2, Config{Buffers: 32})
	raw, node, b := net.addRaw(), net.nodes[0], net.nodes[1]
	for range 4 {
		if err := node.Send(raw.id, node.buf(t, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	held := node.buf(t, 1000)
	if err := node.Send(raw.id, held); !errors.Is(err, ErrAgain) {
		t.Fatalf("fifth frame: %v, want ErrAgain", err)
	}
	// Others are served, and eager frames too.
	for _, to := range []struct {
		id   fabric.NodeID
		size int
	}{{b.id, 1000}, {raw.id, 100}} {
		if err := node.Send(to.id, node.buf(t, to.size)); err != nil {
			t.Errorf("to node %d: %v", to.id, err)
		}
	}
	net.settle()
	fetched := 0
	for _, m := range raw.receive() {
		if m.typ != TypeAdvert {
			continue
		}
		if wake := fetched >= 2; (node.credit != 0) != wake {
			t.Errorf("%d frames fetched, OnCredit called %d times", fetched, node.credit)
		}
		var ad Advert
		if err := ad.UnmarshalBinary(m.payload); err != nil {
			t.Fatal(err)
		}
		raw.get(node.id, ad.NLA, int(ad.Length))
		net.settle()
		fetched++
	}
	if node.credit != 1 {
		t.Errorf("OnCredit was called %d times", node.credit)
	}
	if err := node.Send(raw.id, held); err != nil {
		t.Errorf("fifth frame again: %v", err)
	}
}

// What a peer has not fetched when its link ends is taken back then, though nothing is sent
// meanwhile: frames go by the next link at once.
func TestLinkEndsUnderLoans(t *testing.T) {
	net := newNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	size := a.EagerThreshold() + 1
	for range a.peerBuffers() {
		if err := a.Send(b.id, a.buf(t, size)); err != nil {
			t.Fatal(err)
		}
	}
	waits := a.buf(t, size)
	if err := a.Send(b.id, waits); !errors.Is(err, ErrAgain) {
		t.Fatal(err)
	}
	if err := net.fabric.Detach(b.nic); err != nil {
		t.Fatal(err)
	}
	if a.credit != 1 {
		t.Errorf("OnCredit was called %d times", a.credit)
	}
	if err := net.fabric.Attach(b.nic); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(waits.Frame())
	if err := a.Send(b.id, waits); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, want)
	if s := a.Stats(); s.TxNotRead != uint64(a.peerBuffers()) || s.TxTimeout != 0 {
		t.Errorf("%+v", s)
	}
	net.checkIdle()
}

// What a hostile peer advertises is counted and refused, and a frame of a good
// one arrives as ever.
func TestHostileAdverts(t *testing.T) {
	net := newNet(t, 2, Config{MaxFrame: 9014})
	raw, node, b := net.addRaw(), net.nodes[0], net.nodes[1]
	mem := make([]byte, 16384)
	random(mem)
	_, loan := raw.region(mem, node.id)
	_, elsewhere := raw.region(make([]byte, 4096), b.id)
	closed, gone := raw.region(make([]byte, 4096), node.id)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := raw.nic.ATU().Register(9, make([]byte, 4096), atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	otherVPID, _ := other.Lend(node.id)
	// A loan of b to node, and one of node to b.
	if err := b.Send(node.id, b.buf(t, 2000)); err != nil {
		t.Fatal(err)
	}
	var stolen atu.NLA
	for last := range b.peers.peerOf(node.id).lent {
		stolen = last - 1984
	}
	csum := Offload{Flags: OffloadNeedsChecksum, CsumStart: 1000, CsumOffset: 16}
	for _, tt := range []struct {
		name string
		msg  message
		want string // counter
	}{
		{"length 0", rawAdvert(loan, 0, Offload{}), "rx_bad_advert"},
		{"length 13", rawAdvert(loan, 13, Offload{}), "rx_bad_advert"},
		{"over the maximum", rawAdvert(loan, 9015, Offload{}), "rx_bad_advert"},
		{"over the format", rawAdvert(loan, MaxFrame+1, Offload{}), "rx_bad_advert"},
		{"length 2^32-1", rawAdvert(loan, 1<<32-1, Offload{}), "rx_bad_advert"},
		{"23 bytes", message{typ: TypeAdvert, payload: rawAdvert(loan, 100, Offload{}).payload[:23]}, "rx_bad_advert"},
		{"1 byte", message{typ: TypeAdvert, payload: []byte{0}}, "rx_bad_advert"},
		{"by multicast", message{typ: TypeAdvert, multicast: true, payload: rawAdvert(loan, 100, Offload{}).payload}, "rx_bad_advert"},
		{"checksum beyond the frame", rawAdvert(loan, 1014+17, csum), "rx_bad_offload"},
		{"segmentation 77", rawAdvert(loan, 1000, Offload{Flags: 1, GSOType: 77, GSOSize: 1}), "rx_bad_offload"},
		{"address of nowhere", rawAdvert(0x123456789abcd, 100, Offload{}), "rx_get_failed"},
		{"address 0", rawAdvert(0, 100, Offload{}), "rx_get_failed"},
		{"all ones", rawAdvert(1<<64-1, 100, Offload{}), "rx_get_failed"},
		{"closed region", rawAdvert(gone, 100, Offload{}), "rx_get_failed"},
		{"of another VPID", rawAdvert(otherVPID, 100, Offload{}), "rx_get_failed"},
		{"lent to another node", rawAdvert(elsewhere, 100, Offload{}), "rx_get_failed"},
		{"old generation", rawAdvert(loan-1<<40, 100, Offload{}), "rx_get_failed"},
		{"beyond the region", rawAdvert(loan+16384-50, 100, Offload{}), "rx_get_failed"},
		// b's loan to node, but read from raw's memory: not a loan there.
		{"of somebody else", rawAdvert(stolen, 2000, Offload{}), "rx_get_failed"},
	} {
		before := map[string]uint64{}
		for name, v := range node.Stats().All() {
			before[name] = v
		}
		raw.send(node.id, tt.msg)
		for node.poll() {
		}
		for name, v := range node.Stats().All() {
			want := before[name]
			if name == tt.want {
				want++
			}
			switch name {
			case "rx_bytes", "rx_rendezvous": // b's own frame comes with the first poll
			default:
				if v != want {
					t.Errorf("%s: %s is %d, want %d", tt.name, name, v, want)
				}
			}
		}
		raw.receive()
		b.frames.Take()
	}
	node.frames.Take()
	// Good adverts are taken, as often as they come: the loan is raw's affair.
	for _, n := range []int{14, 9014} {
		raw.send(node.id, rawAdvert(loan, uint32(n), Offload{}))
		net.settle()
		checkFrames(t, node.frames.Take(), raw.id, mem[:n])
	}
	net.settle()
	net.checkIdle()
}

// A peer reads what was lent to it, for as long, and nothing else.
func TestHostileGets(t *testing.T) {
	net := newNet(t, 2, Config{TransferTimeout: time.Millisecond})
	raw, thief, node, b := net.addRaw(), net.addRaw(), net.nodes[0], net.nodes[1]
	buf := node.buf(t, 3000)
	want := bytes.Clone(buf.Frame())
	if err := node.Send(raw.id, buf); err != nil {
		t.Fatal(err)
	}
	var ad Advert
	if err := ad.UnmarshalBinary(raw.receive()[0].payload); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		nla  atu.NLA
		n    int
	}{
		{"the other's loan", ad.NLA, 3000},
		{"a byte of it", ad.NLA + 2999, 1},
		{"a free buffer", ad.NLA + 4096, 100},
		{"the next generation", ad.NLA + 1<<40, 100},
		{"the sink", node.sink.region.NLA(), 100},
	} {
		if _, st := thief.get(node.id, tt.nla, tt.n); st != fabric.StatusProtection {
			t.Errorf("%s: %v, want %v", tt.name, st, fabric.StatusProtection)
		}
	}
	// Nobody writes to it, not even the peer that may read.
	for _, r := range []*rawNode{raw, thief} {
		for _, nla := range []atu.NLA{ad.NLA, node.sink.region.NLA()} {
			if err := r.rma.PutImmediate(rma.PutImmediateReq{Len: 9, Remote: nla, Node: node.id, Notify: rma.NotifyRequester}); err != nil {
				t.Fatal(err)
			}
			if n, ok := r.rma.Next(); !ok || n.Status != fabric.StatusProtection {
				t.Errorf("PUT to %v: %v", nla, n.Status)
			}
		}
	}
	got, st := raw.get(node.id, ad.NLA, 3000)
	if st != fabric.StatusOK || !bytes.Equal(got, want) {
		t.Errorf("the frame was harmed: %v", st)
	}
	net.settle()
	checkFrames(t, b.frames.Take(), node.id)
	checkStats(t, node.Stats(), map[string]uint64{"tx_rendezvous": 1, "tx_bytes": 3000})
	net.checkIdle()
}

// A peer can guess the address of the next loan, and read the frame before it
// is told: the sender must not give the buffer to anybody else meanwhile.
func TestReadBeforeAdvert(t *testing.T) {
	net := newNet(t, 1, Config{TransferTimeout: time.Millisecond})
	raw, node := net.addRaw(), net.nodes[0]
	pr := node.peers.peerOf(raw.id)
	buf := node.buf(t, 1000)
	start, err := pr.lendBuffer(buf, 1)
	if err != nil {
		t.Fatal(err)
	}
	node.outstanding.Add(1)
	window, err := node.Port.nic.ATU().Translate(start, 1000, 0, raw.id, atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	if node.takeBack(pr, rma.LastFragment(start, 1000)) != nil {
		t.Fatal("a buffer that is being read was taken back")
	}
	time.Sleep(2 * time.Millisecond)
	node.Expire()
	if node.free() != node.cfg.Buffers-1 {
		t.Fatal("a buffer that is being read was freed")
	}
	window.Release()
	node.Expire()
	checkStats(t, node.Stats(), map[string]uint64{"tx_timeout": 1})
	net.checkIdle()
}

// The receiver's refusal frees everything, and is counted once.
func TestRefused(t *testing.T) {
	net := newNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	b.refuse = errors.New("no")
	for _, size := range []int{100, 1000} {
		if err := a.Send(b.id, a.buf(t, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SendGroup(63, a.buf(t, 200), false); err != nil {
		t.Fatal(err)
	}
	net.settle()
	checkStats(t, b.Stats(), map[string]uint64{
		"rx_eager": 1, "rx_rendezvous": 1, "rx_group": 1, "rx_bytes": 1300, "rx_refused": 3,
	})
	checkStats(t, a.Stats(), map[string]uint64{"tx_eager": 1, "tx_rendezvous": 1, "tx_group": 1, "tx_bytes": 1300})
	net.checkIdle()
}
