package rma_test

import (
	"bytes"
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/fabric/route"
	"exnet/foreign"
)

// slowLink keeps requests until the test answers them, as a link between hosts
// would.
type slowLink struct {
	gets []slowGet
	puts []slowPut
}

type slowGet struct {
	link.Get
	link.Sink
}

type slowPut struct {
	link.Put
	link.Done
	data []byte
}

func (l *slowLink) OpenFlow(_, _ fabric.VPID, _ link.Credit) (link.Flow, error) {
	return nil, fabric.ErrPeerDown
}
func (l *slowLink) Get(g link.Get, s link.Sink) { l.gets = append(l.gets, slowGet{g, s}) }
func (l *slowLink) Put(p link.Put, data []byte, d link.Done) {
	l.puts = append(l.puts, slowPut{p, d, data})
}

func newSlowRig(t *testing.T) (*slowLink, *rma.Endpoint, *atu.Region) {
	t.Helper()
	var (
		l      = new(slowLink)
		routes route.Table
		a      = atu.New(0)
	)
	routes.Set(1, l)
	e, err := rma.NewUnit(0, a, &routes).Open(here, rma.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Register(here, make([]byte, 1000), atu.Read|atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	return l, e, r
}

// The response comes later, in pieces and out of order; until then the memory is
// busy and there is no notification.
func TestGetOverSlowLink(t *testing.T) {
	l, e, r := newSlowRig(t)
	req := rma.GetReq{Local: r.NLA(), Remote: 12345, Len: 1000, Node: 1, VPID: there, Notify: rma.NotifyCompleter | rma.NotifyResponder}
	if err := e.Get(req); err != nil {
		t.Fatal(err)
	}
	g := l.gets[0]
	if want := (link.Get{From: here, To: there, Remote: 12345, Len: 1000, Notify: true}); g.Get != want {
		t.Fatalf("request %+v", g.Get)
	}
	data := bytes.Repeat([]byte("0123456789"), 100)
	for _, off := range []int{496, 992, 0} {
		if err := g.Data(off, foreign.Of(data[off:min(off+496, 1000)])); err != nil {
			t.Fatal(err)
		}
		if r.Revoke() {
			t.Fatal("the sink is not busy during the transfer")
		}
		expect(t, "not yet", e)
	}
	g.Done(fabric.StatusOK)
	expect(t, "done", e, rma.Notification{
		Writer: rma.Completer, Command: rma.CommandGet, Node: 1, VPID: there, Len: 1000,
		Local: r.NLA() + 992,
	})
	if !bytes.Equal(r.Bytes(), data) || !r.Revoke() {
		t.Error("wrong data, or the sink is still busy")
	}
}

func TestBadResponses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(link.Sink)
		want   fabric.Status
	}{
		{"too short", func(s link.Sink) {
			_ = s.Data(0, foreign.Of(make([]byte, 99)))
			s.Done(fabric.StatusOK)
		}, fabric.StatusBadResponse},
		{"nothing", func(s link.Sink) { s.Done(fabric.StatusOK) }, fabric.StatusBadResponse},
		{"too long", func(s link.Sink) {
			if err := s.Data(1, foreign.Of(make([]byte, 100))); err == nil {
				t.Error("data behind the end was taken")
			}
			s.Done(fabric.StatusOK)
		}, fabric.StatusBadResponse},
		{"before the beginning", func(s link.Sink) {
			if err := s.Data(-1, foreign.Of(make([]byte, 100))); err == nil {
				t.Error("data before the beginning was taken")
			}
			s.Done(fabric.StatusOK)
		}, fabric.StatusBadResponse},
		{"far behind the end", func(s link.Sink) {
			if err := s.Data(1<<40, foreign.Of(nil)); err == nil {
				t.Error("data far behind the end was taken")
			}
			s.Done(fabric.StatusOK)
		}, fabric.StatusBadResponse},
		{"link lost", func(s link.Sink) {
			_ = s.Data(0, foreign.Of(make([]byte, 50)))
			s.Done(fabric.StatusPeerDown)
		}, fabric.StatusPeerDown},
		{"status that does not exist", func(s link.Sink) { s.Done(99) }, fabric.StatusBadResponse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, e, r := newSlowRig(t)
			if err := e.Get(rma.GetReq{Local: r.NLA() + 7, Remote: 1, Len: 100, Node: 1, VPID: there, Notify: rma.NotifyCompleter}); err != nil {
				t.Fatal(err)
			}
			tt.answer(l.gets[0])
			expect(t, tt.name, e, rma.Notification{
				Writer: rma.Completer, Command: rma.CommandGet, Status: tt.want,
				Node: 1, VPID: there, Len: 100, Local: r.NLA() + 7,
			})
			if b := r.Bytes(); b[6] != 0 || b[107] != 0 {
				t.Error("memory beside the sink was written")
			}
		})
	}
}

func TestPutOverSlowLink(t *testing.T) {
	l, e, r := newSlowRig(t)
	copy(r.Bytes(), "data")
	if err := e.Put(rma.PutReq{Local: r.NLA(), Remote: 5, Len: 4, Node: 1, VPID: there, Notify: rma.NotifyRequester}); err != nil {
		t.Fatal(err)
	}
	p := l.puts[0]
	if string(p.data) != "data" || p.Put != (link.Put{From: here, To: there, Remote: 5}) {
		t.Fatalf("request %+v, %q", p.Put, p.data)
	}
	if r.Revoke() {
		t.Fatal("the source is not busy during the transfer")
	}
	p.Done.Done(fabric.StatusProtection)
	expect(t, "done", e, rma.Notification{
		Writer: rma.Requester, Command: rma.CommandPut, Status: fabric.StatusProtection,
		Node: 1, VPID: there, Len: 4, Local: r.NLA(),
	})
	if !r.Revoke() {
		t.Error("the source is still busy")
	}
}

// collector is an origin that a test asks for.
type collector struct {
	data   []byte
	status []fabric.Status
	err    error
}

func (c *collector) Data(off int, p foreign.Memory) error {
	c.data = p.AppendTo(c.data[:off])
	return c.err
}
func (c *collector) Done(s fabric.Status) { c.status = append(c.status, s) }

// What a peer may put into a request packet.
func TestHostileRequests(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	good := link.Get{From: here, To: there, Remote: r.remoteNLA, Len: 100}
	for _, tt := range []struct {
		name   string
		change func(*link.Get)
		want   fabric.Status
	}{
		{"good", func(*link.Get) {}, fabric.StatusOK},
		{"no bytes", func(g *link.Get) { g.Len = 0 }, fabric.StatusProtection},
		{"negative", func(g *link.Get) { g.Len = -1 }, fabric.StatusProtection},
		{"too many", func(g *link.Get) { g.Len = rma.MaxTransfer + 1 }, fabric.StatusProtection},
		{"beyond the region", func(g *link.Get) { g.Len = 101 }, fabric.StatusProtection},
		{"origin's VPID", func(g *link.Get) { g.From = 256 }, fabric.StatusProtection},
		{"target's VPID", func(g *link.Get) { g.To = 256 }, fabric.StatusNoVPID},
		{"address", func(g *link.Get) { g.Remote = ^atu.NLA(0) }, fabric.StatusProtection},
	} {
		g, c := good, new(collector)
		tt.change(&g)
		r.nics[1].ServeGet(0, g, c)
		if len(c.status) != 1 || c.status[0] != tt.want || len(c.data) != map[bool]int{true: 100}[tt.want == fabric.StatusOK] {
			t.Errorf("GET, %s: status %v, %d bytes", tt.name, c.status, len(c.data))
		}
	}
	for _, tt := range []struct {
		name string
		put  link.Put
		n    int
		want fabric.Status
	}{
		{"good", link.Put{From: here, To: there, Remote: r.remoteNLA}, 100, fabric.StatusOK},
		{"no bytes", link.Put{From: here, To: there, Remote: r.remoteNLA}, 0, fabric.StatusProtection},
		{"too many", link.Put{From: here, To: there, Remote: r.remoteNLA}, rma.MaxTransfer + 1, fabric.StatusProtection},
		{"beyond the region", link.Put{From: here, To: there, Remote: r.remoteNLA + 1}, 100, fabric.StatusProtection},
		{"origin's VPID", link.Put{From: 256, To: there, Remote: r.remoteNLA}, 1, fabric.StatusProtection},
		{"target's VPID", link.Put{From: here, To: 999, Remote: r.remoteNLA}, 1, fabric.StatusNoVPID},
	} {
		c := new(collector)
		r.nics[1].ServePut(0, tt.put, foreign.Of(make([]byte, tt.n)), c)
		if len(c.status) != 1 || c.status[0] != tt.want {
			t.Errorf("PUT, %s: status %v", tt.name, c.status)
		}
	}
	if s := r.nics[1].Stats().RMA; s.BadRequests != 7 || s.NoVPID != 2 || s.RemoteProtection != 3 || s.Served != 2 {
		t.Errorf("counters %+v", s)
	}
	c := &collector{err: errors.New("sink broken")}
	good.Notify = true
	r.nics[1].ServeGet(0, good, c)
	if n := all(r.target); len(n) != 1 || len(c.status) != 1 {
		t.Errorf("a broken sink: %v, %v", n, c.status)
	}
	if !r.remote.Revoke() {
		t.Error("the region is still busy")
	}
}

func FuzzServeGet(f *testing.F) {
	r := newRig(f, 3000, rma.Config{})
	f.Add(uint16(here), uint16(there), uint64(r.remoteNLA), 3000, uint16(0), true)
	f.Add(uint16(here), uint16(there), uint64(r.remoteNLA)+1, 3000, uint16(1), false)
	f.Add(uint16(999), uint16(65535), ^uint64(0), -5, uint16(65535), true)
	f.Fuzz(func(t *testing.T, from, to uint16, remote uint64, n int, src uint16, notify bool) {
		c := new(collector)
		r.nics[1].ServeGet(fabric.NodeID(src), link.Get{
			From: fabric.VPID(from), To: fabric.VPID(to), Remote: atu.NLA(remote), Len: n, Notify: notify,
		}, c)
		if len(c.status) != 1 {
			t.Fatalf("status %v", c.status)
		}
		ok := c.status[0] == fabric.StatusOK
		if ok && len(c.data) != n || !ok && c.data != nil {
			t.Fatalf("status %v, %d bytes of %d", c.status, len(c.data), n)
		}
		if got := all(r.target); (len(got) == 1) != (ok && notify) {
			t.Fatalf("notifications %+v", got)
		}
	})
}
