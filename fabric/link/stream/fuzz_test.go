package stream

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// count is a Done that counts.
type count struct{ n int }

func (c *count) Done(fabric.Status) { c.n++ }

// FuzzPeer gives what a peer may send to a link with operations under way: whatever it is,
// each operation ends once, and nothing stays lent.
func FuzzPeer(f *testing.F) {
	for name, b := range breaches(1 << 40) {
		if len(b) < 1<<12 {
			f.Add(b, uint8(len(name)))
		}
	}
	for _, tt := range messages {
		f.Add(append(tt.b, make([]byte, 600)...), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		n, err := nic.New(nic.Config{Node: victimID})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if _, err := n.OpenVELO(1, velo.Config{Slots: 8, Credits: 4}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.OpenRMA(1, rma.Config{}); err != nil {
			t.Fatal(err)
		}
		region, err := n.ATU().Register(1, make([]byte, 4096), atu.Read|atu.Write)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := region.Lend(peerID); err != nil {
			t.Fatal(err)
		}
		l := bare(n)
		c := l.conns[0]
		l.boxes[1].Store(4)
		if _, err := (port{l}).OpenFlow(1, 1, nobody{}); err != nil {
			t.Fatal(err)
		}
		var done count
		memory := make([]byte, 4096)
		(port{l}).Put(link.Put{From: 1, To: 1}, memory[:100], &done)
		(port{l}).Put(link.Put{From: 1, To: 1}, memory, &done)
		for len(b) > 0 {
			place, more := c.rx.nextPlace()
			n := copy(place, b[:min(len(b), 1+int(step))])
			n += copy(more, b[n:max(n, min(len(b), 1+int(step)))])
			b = b[n:]
			if err := l.takeRead(c, n); err != nil {
				break
			}
			l.performCalls(l.takeCalls())
		}
		l.performCalls(l.takeCalls())
		l.endAll()
		l.failAll()
		if done.n != 2 {
			t.Errorf("two PUTs ended %d times", done.n)
		}
		if !region.Revoke() {
			t.Error("the region stays busy")
		}
	})
}

// nobody is a source of messages that waits for nothing.
type nobody struct{}

func (nobody) Return(uint64) {}
func (nobody) Resume()       {}
func (nobody) Down()         {}

// bare is a link without connections: the test plays all of them.
func bare(n link.NIC) *Link {
	l := &Link{
		nic: n, cfg: Config{Peer: peerID}, done: make(chan struct{}), calls: new(callList),
	}
	l.events.set, l.events.event = -1, -1
	l.outs.Store(new([]*outflow))
	l.out.init()
	l.ops.init()
	l.serving.init()
	c := &conn{messages: true, data: true, fd: -1}
	c.rx.init()
	l.conns = []*conn{c}
	return l
}

// kinds takes a batch, and returns its kinds of messages in order.
func kinds(t *testing.T, l *Link) (list []kind) {
	t.Helper()
	l.out.mu.Lock()
	l.out.takeLocked(l.conns[0])
	l.out.mu.Unlock()
	b := &l.conns[0].batch
	var bytes []byte
	for _, p := range b.appendUnsent(nil) {
		bytes = append(bytes, p...)
	}
	for len(bytes) > 0 {
		var m message
		n, err := m.decode(bytes)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes: %v", len(bytes), err)
		}
		if m.kind == kindPutData {
			n += chunkLen(m.n, m.off)
		}
		list, bytes = append(list, m.kind), bytes[n:]
	}
	return list
}

// A message waits for no more than the chunks that were begun, of however large a
// transfer; transfers have their chunks in turn.
func TestMessageBetweenChunks(t *testing.T) {
	l := bare(newNIC(t, victimID))
	l.boxes[1].Store(4)
	f, err := port{l}.OpenFlow(1, 1, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	var done count
	for range 2 {
		port{l}.Put(link.Put{From: 1, To: 1}, make([]byte, rma.MaxTransfer), &done)
	}
	if got := kinds(t, l); len(got) != 1+batchChunks || got[0] != kindOpen || got[1] != kindPutData {
		t.Fatalf("the first batch is %v", got)
	}
	b := &l.conns[0].batch
	if b.chunks[0].x == b.chunks[1].x || b.chunks[0].x != b.chunks[2].x {
		t.Error("the transfers do not take turns")
	}
	// The socket took the messages and half of the first chunk; then one comes.
	b.noteWritten(len(b.ctl)+chunkSize/2, nil)
	l.out.putBack(b.takeUnstarted())
	_, pos, err := f.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	f.Commit(pos, 8<<40)
	rest := 0
	for _, p := range b.appendUnsent(nil) {
		rest += len(p)
	}
	if rest != putDataLen+chunkSize-chunkSize/2 {
		t.Errorf("the message waits for %d bytes", rest)
	}
	b.noteWritten(rest, nil)
	got := kinds(t, l)
	if got[0] != kindVELO || len(got) != 1+batchChunks {
		t.Errorf("the second batch is %v", got)
	}
	// Every chunk is sent once, in the end.
	sent := map[chunk]bool{}
	for i := 0; !b.empty(); i++ {
		for _, p := range b.chunks[b.cur:b.n] {
			if sent[p.chunk] {
				t.Fatal("a chunk is sent twice")
			}
			sent[p.chunk] = true
		}
		all := 0
		for _, p := range b.appendUnsent(nil) {
			all += len(p)
		}
		b.noteWritten(all, nil)
		kinds(t, l)
	}
	if len(sent) != 2*maxChunks-1 { // without the one that went first
		t.Errorf("%d chunks were sent, want %d", len(sent), 2*maxChunks-1)
	}
	l.endAll()
	l.failAll()
	if done.n != 2 {
		t.Errorf("two PUTs ended %d times", done.n)
	}
}

// Who sends more than the peer takes is refused a slot, and told when there are some.
func TestStarved(t *testing.T) {
	l := bare(newNIC(t, victimID))
	l.boxes[1].Store(maxCredits)
	var told resumed
	f, err := port{l}.OpenFlow(1, 1, &told)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		_, pos, err := f.Reserve()
		if err != nil {
			break
		}
		f.Commit(pos, 120<<40)
		if n++; n > maxCredits {
			t.Fatal("never refused")
		}
	}
	if len(l.out.ctl) > ctlLimit+maxMessage {
		t.Errorf("%d bytes wait", len(l.out.ctl))
	}
	l.out.mu.Lock()
	resume := l.out.takeLocked(l.conns[0])
	l.out.mu.Unlock()
	if !resume {
		t.Fatal("nobody is to be told")
	}
	l.resumeFlows()
	l.resumeFlows()
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	if _, _, err := f.Reserve(); err != nil {
		t.Error(err)
	}
}

type resumed int

func (r *resumed) Return(uint64) {}
func (r *resumed) Resume()       { *r++ }
func (r *resumed) Down()         {}

// Messages and chunks are queued, sent and received without memory of their own, once there
// is some.
func TestNoAllocations(t *testing.T) {
	n := newNIC(t, victimID)
	if _, err := n.OpenVELO(1, velo.Config{Slots: 8, Credits: 4}); err != nil {
		t.Fatal(err)
	}
	l := bare(n)
	l.boxes[1].Store(4)
	f, err := port{l}.OpenFlow(1, 1, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	c := l.conns[0]
	kinds(t, l) // the flow is opened
	c.batch.noteWritten(openLen, nil)
	x := &xfer{head: message{kind: kindGetData}, data: make([]byte, 3*chunkSize)}
	if n := testing.AllocsPerRun(100, func() {
		for range 3 {
			_, pos, err := f.Reserve()
			if err != nil {
				t.Fatal(err)
			}
			f.Commit(pos, 64<<40)
		}
		x.off = 0
		l.out.sendData(x)
		l.out.mu.Lock()
		l.out.takeLocked(c)
		l.out.mu.Unlock()
		c.iov = c.batch.appendUnsent(c.iov[:0])
		all := 0
		for _, p := range c.iov {
			all += len(p)
		}
		c.batch.noteWritten(all, c.ends[:0])
	}); n != 0 {
		t.Errorf("sending: %v allocations", n)
	}
	ping := (&message{kind: kindPing, word: 1}).append(nil)
	if n := testing.AllocsPerRun(100, func() {
		_, more := c.rx.nextPlace()
		if err := l.takeRead(c, copy(more, ping)); err != nil {
			t.Fatal(err)
		}
		l.performCalls(l.takeCalls())
	}); n != 0 {
		t.Errorf("receiving: %v allocations", n)
	}
}

func TestConfig(t *testing.T) {
	conns := func(n int) []net.Conn { return slices.Repeat([]net.Conn{new(net.TCPConn)}, n) }
	pipe, _ := net.Pipe()
	for name, cfg := range map[string]Config{
		"no connections":       {},
		"too many connections": {Conns: conns(MaxConns + 1)},
		"no socket":            {Conns: []net.Conn{pipe}},
		"hello":                {Conns: conns(1), HelloTimeout: -1},
		"heartbeat":            {Conns: conns(1), Heartbeat: time.Microsecond},
		"down before a beat":   {Conns: conns(1), Heartbeat: time.Second, DownAfter: time.Second},
	} {
		if c, err := cfg.withDefaults(); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if c, err := (Config{Conns: conns(MaxConns)}).withDefaults(); err != nil || c.DownAfter != 3*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
	a, b := tcp(t)
	n := newNIC(t, victimID)
	if l, err := New(n, Config{Peer: victimID, Conns: []net.Conn{a}}); l != nil || !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("with itself: %v, %v", l, err)
	}
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
}
