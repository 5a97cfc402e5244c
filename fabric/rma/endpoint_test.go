package rma_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/foreign"
	"exnet/internal/racetest"
)

const (
	here  = fabric.VPID(1) // of the origin
	there = fabric.VPID(2) // of the target
)

// rig is an origin (node 0) and a target (node 1), each with memory.
type rig struct {
	nics           []*nic.NIC
	origin, target *rma.Endpoint
	local, remote  *atu.Region
	remoteNLA      atu.NLA // remote as lent to the origin
}

func newRig(tb testing.TB, size int, cfg rma.Config) *rig {
	tb.Helper()
	r := &rig{nics: fabrictest.New(tb, 3)}
	r.origin = fabrictest.OpenRMA(tb, r.nics[0], here, cfg)
	r.target = fabrictest.OpenRMA(tb, r.nics[1], there, cfg)
	r.local = fabrictest.Register(tb, r.nics[0], here, size, atu.Read|atu.Write)
	r.remote = fabrictest.Register(tb, r.nics[1], there, size, atu.Read|atu.Write)
	nla, err := r.remote.Lend(0)
	if err != nil {
		tb.Fatal(err)
	}
	r.remoteNLA = nla
	return r
}

func (r *rig) get(n int, notify rma.Notify) rma.GetReq {
	return rma.GetReq{Local: r.local.NLA(), Remote: r.remoteNLA, Len: n, Node: 1, VPID: there, Notify: notify}
}

func (r *rig) put(n int, notify rma.Notify) rma.PutReq {
	return rma.PutReq{Local: r.local.NLA(), Remote: r.remoteNLA, Len: n, Node: 1, VPID: there, Notify: notify}
}

// all reads all notifications of e.
func all(e *rma.Endpoint) (list []rma.Notification) {
	for {
		n, ok := e.Next()
		if !ok {
			return list
		}
		list = append(list, n)
	}
}

// expect fails unless e's notifications are exactly those in want.
func expect(tb testing.TB, name string, e *rma.Endpoint, want ...rma.Notification) {
	tb.Helper()
	got := all(e)
	if len(got) != len(want) {
		tb.Fatalf("%s: notifications %+v, want %+v", name, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			tb.Errorf("%s: notification\n%+v, want\n%+v", name, got[i], want[i])
		}
	}
}

func TestGet(t *testing.T) {
	const size = 2000
	r := newRig(t, size, rma.Config{})
	for _, tt := range []struct {
		n      int
		notify rma.Notify
	}{
		{1, 0},
		{496, rma.NotifyCompleter},
		{1001, rma.NotifyCompleter | rma.NotifyResponder},
		{size, rma.NotifyCompleter | rma.NotifyResponder},
	} {
		for i := range r.remote.Bytes() {
			r.remote.Bytes()[i] = byte(i*7 + tt.n)
		}
		clear(r.local.Bytes())
		if err := r.origin.Get(r.get(tt.n, tt.notify)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.local.Bytes()[:tt.n], r.remote.Bytes()[:tt.n]) {
			t.Errorf("%d bytes: wrong data", tt.n)
		}
		if rest := r.local.Bytes()[tt.n:]; !bytes.Equal(rest, make([]byte, len(rest))) {
			t.Errorf("%d bytes: more was written", tt.n)
		}
		var atOrigin, atTarget []rma.Notification
		if tt.notify&rma.NotifyCompleter != 0 {
			atOrigin = append(atOrigin, rma.Notification{
				Writer: rma.Completer, Command: rma.CommandGet, Node: 1, VPID: there, Len: tt.n,
				Local: rma.LastFragment(r.local.NLA(), tt.n),
			})
		}
		if tt.notify&rma.NotifyResponder != 0 {
			atTarget = append(atTarget, rma.Notification{
				Writer: rma.Responder, Command: rma.CommandGet, Node: 0, VPID: here, Len: tt.n,
				Local: rma.LastFragment(r.remoteNLA, tt.n),
			})
		}
		expect(t, "origin", r.origin, atOrigin...)
		expect(t, "target", r.target, atTarget...)
	}
	if s := r.nics[0].Stats().RMA; s.Gets != 4 || s.GetBytes != 1+496+1001+size || s.Failed != 0 {
		t.Errorf("origin's counters %+v", s)
	}
	if s := r.nics[1].Stats().RMA; s.Served != 4 {
		t.Errorf("target's counters %+v", s)
	}
}

func TestPut(t *testing.T) {
	r := newRig(t, 2000, rma.Config{})
	for i, notify := range []rma.Notify{0, rma.NotifyRequester, rma.NotifyRequester | rma.NotifyCompleter} {
		n := 600 + i
		for j := range r.local.Bytes() {
			r.local.Bytes()[j] = byte(j*3 + i)
		}
		if err := r.origin.Put(r.put(n, notify)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.remote.Bytes()[:n], r.local.Bytes()[:n]) {
			t.Errorf("%03b: wrong data", notify)
		}
		var atOrigin, atTarget []rma.Notification
		if notify&rma.NotifyRequester != 0 {
			atOrigin = append(atOrigin, rma.Notification{
				Writer: rma.Requester, Command: rma.CommandPut, Node: 1, VPID: there, Len: n,
				Local: rma.LastFragment(r.local.NLA(), n),
			})
		}
		if notify&rma.NotifyCompleter != 0 {
			atTarget = append(atTarget, rma.Notification{
				Writer: rma.Completer, Command: rma.CommandPut, Node: 0, VPID: here, Len: n,
				Local: rma.LastFragment(r.remoteNLA, n),
			})
		}
		expect(t, "origin", r.origin, atOrigin...)
		expect(t, "target", r.target, atTarget...)
	}
}

func TestPutImmediate(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	req := rma.PutImmediateReq{
		Data: [9]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, Len: 9, Remote: r.remoteNLA + 10,
		Node: 1, VPID: there, Notify: rma.NotifyRequester | rma.NotifyCompleter,
	}
	if err := r.origin.PutImmediate(req); err != nil {
		t.Fatal(err)
	}
	if got := r.remote.Bytes()[10:20]; !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}) {
		t.Errorf("memory % x", got)
	}
	expect(t, "origin", r.origin, rma.Notification{
		Writer: rma.Requester, Command: rma.CommandPutImmediate, Node: 1, VPID: there, Len: 9,
	})
	expect(t, "target", r.target, rma.Notification{
		Writer: rma.Completer, Command: rma.CommandPutImmediate, Node: 0, VPID: here, Len: 9,
		Local: r.remoteNLA + 10,
	})
	for _, n := range []int{0, 10} {
		req.Len = n
		if err := r.origin.PutImmediate(req); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// What is wrong with a request is found before anything starts: an error, and no
// notification.
func TestRequestsAreChecked(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	device, err := r.nics[0].ATU().RegisterDevice(here, &sink{}, 100, atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*rma.GetReq)
		want   error
	}{
		{"0 bytes", func(q *rma.GetReq) { q.Len = 0 }, fabric.ErrInvalid},
		{"8 MB + 1", func(q *rma.GetReq) { q.Len = rma.MaxTransfer + 1 }, fabric.ErrInvalid},
		{"VPID", func(q *rma.GetReq) { q.VPID = 256 }, fabric.ErrInvalid},
		{"all notifications", func(q *rma.GetReq) { q.Notify = 7 }, fabric.ErrInvalid},
		{"no such node", func(q *rma.GetReq) { q.Node = 77 }, fabric.ErrNoRoute},
		{"local address", func(q *rma.GetReq) { q.Local += 1 << 30 }, fabric.ErrProtection},
		{"local bounds", func(q *rma.GetReq) { q.Len = 101 }, fabric.ErrProtection},
	} {
		g := r.get(10, rma.NotifyCompleter)
		tt.change(&g)
		if err := r.origin.Get(g); !errors.Is(err, tt.want) {
			t.Errorf("GET, %s: %v", tt.name, err)
		}
		p := rma.PutReq(r.get(10, 0))
		tt.change((*rma.GetReq)(&p))
		if err := r.origin.Put(p); !errors.Is(err, tt.want) {
			t.Errorf("PUT, %s: %v", tt.name, err)
		}
	}
	p := r.put(10, 0)
	p.Local = device.NLA()
	if err := r.origin.Put(p); !errors.Is(err, atu.ErrAccess) {
		t.Errorf("PUT from a device: %v", err)
	}
	im := rma.PutImmediateReq{Len: 1, Remote: r.remoteNLA, Node: 77, VPID: there}
	if err := r.origin.PutImmediate(im); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("immediate PUT, no such node: %v", err)
	}
	expect(t, "origin", r.origin)
	expect(t, "target", r.target)
	if s := r.nics[0].Stats().RMA; s.NoRoute != 3 || s.LocalProtection != 5 {
		t.Errorf("counters %+v", s)
	}
	if !r.local.Revoke() || !r.remote.Revoke() {
		t.Error("a region is still busy")
	}
}

// What the target refuses comes back as a notification with the address that a
// good one would have had, and the target notices nothing but a counter.
func TestTargetRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*testing.T, *rig)
		node  fabric.NodeID
		vpid  fabric.VPID
		want  fabric.Status
		err   error
	}{
		{"revoked", func(_ *testing.T, r *rig) { r.remote.Revoke() }, 1, there, fabric.StatusProtection, fabric.ErrProtection},
		{"lent to another node", func(_ *testing.T, r *rig) {
			r.remoteNLA, _ = r.remote.Lend(2)
		}, 1, there, fabric.StatusProtection, fabric.ErrProtection},
		{"lent again: late GET", func(_ *testing.T, r *rig) { _, _ = r.remote.Lend(0) }, 1, there, fabric.StatusProtection, fabric.ErrProtection},
		{"out of bounds", func(_ *testing.T, r *rig) { r.remoteNLA += 200 }, 1, there, fabric.StatusProtection, fabric.ErrProtection},
		{"VPID not open", func(*testing.T, *rig) {}, 1, 99, fabric.StatusNoVPID, fabric.ErrPeerDown},
		{"other VPID's memory", func(t *testing.T, r *rig) {
			fabrictest.OpenRMA(t, r.nics[1], 99, rma.Config{})
		}, 1, 99, fabric.StatusProtection, fabric.ErrProtection},
		{"endpoint closed", func(_ *testing.T, r *rig) { _ = r.target.Close() }, 1, there, fabric.StatusNoVPID, fabric.ErrPeerDown},
		{"NIC closed", func(_ *testing.T, r *rig) { _ = r.nics[1].Close() }, 1, there, fabric.StatusPeerDown, fabric.ErrPeerDown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const n = 900
			r := newRig(t, 1000, rma.Config{})
			tt.spoil(t, r)
			g := r.get(n, rma.NotifyCompleter|rma.NotifyResponder)
			p := r.put(n, rma.NotifyRequester|rma.NotifyCompleter)
			g.VPID, p.VPID = tt.vpid, tt.vpid
			if err := r.origin.Get(g); err != nil {
				t.Fatal(err)
			}
			expect(t, "GET", r.origin, rma.Notification{
				Writer: rma.Completer, Command: rma.CommandGet, Status: tt.want,
				Node: tt.node, VPID: tt.vpid, Len: n, Local: rma.LastFragment(r.local.NLA(), n),
			})
			if err := r.origin.Put(p); err != nil {
				t.Fatal(err)
			}
			expect(t, "PUT", r.origin, rma.Notification{
				Writer: rma.Requester, Command: rma.CommandPut, Status: tt.want,
				Node: tt.node, VPID: tt.vpid, Len: n, Local: rma.LastFragment(r.local.NLA(), n),
			})
			expect(t, "target", r.target)
			if !errors.Is(tt.want.Err(), tt.err) {
				t.Errorf("status %v is error %v", tt.want, tt.want.Err())
			}
			if s := r.nics[0].Stats().RMA; s.Failed != 2 || s.Gets+s.Puts != 0 {
				t.Errorf("origin's counters %+v", s)
			}
			if s := r.nics[1].Stats().RMA; s.Served != 0 || tt.want == fabric.StatusProtection && s.RemoteProtection != 2 || tt.want == fabric.StatusNoVPID && s.NoVPID != 2 {
				t.Errorf("target's counters %+v", s)
			}
			g.Notify, p.Notify = 0, 0 // without notification: the counter only
			if err := errors.Join(r.origin.Get(g), r.origin.Put(p)); err != nil {
				t.Fatal(err)
			}
			expect(t, "without notification", r.origin)
			if !r.local.Revoke() || !r.remote.Revoke() {
				t.Error("a region is still busy")
			}
		})
	}
}

// sink is a device.
type sink struct {
	data   []byte
	off    int64
	err    error
	during func() // called while it is written to; may be nil
}

func (s *sink) WriteAt(p foreign.Memory, off int64) (int, error) {
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return 0, s.err
	}
	s.data, s.off = p.AppendTo(s.data[:0]), off
	return p.Len(), nil
}

func TestGetIntoDevice(t *testing.T) {
	r := newRig(t, 1000, rma.Config{})
	copy(r.remote.Bytes(), "straight into the device")
	d := new(sink)
	dev, err := r.nics[0].ATU().RegisterDevice(here, d, 1000, atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	g := r.get(24, rma.NotifyCompleter|rma.NotifyResponder)
	g.Local = dev.NLA() + 5
	want := rma.Notification{
		Writer: rma.Completer, Command: rma.CommandGet, Node: 1, VPID: there, Len: 24, Local: dev.NLA() + 5,
	}
	if err := r.origin.Get(g); err != nil {
		t.Fatal(err)
	}
	if string(d.data) != "straight into the device" || d.off != 5 {
		t.Errorf("device got %q at %d", d.data, d.off)
	}
	expect(t, "origin", r.origin, want)
	if n := len(all(r.target)); n != 1 {
		t.Errorf("%d responder notifications", n)
	}
	d.err = io.ErrClosedPipe
	if err := r.origin.Get(g); err != nil {
		t.Fatal(err)
	}
	want.Status = fabric.StatusDevice
	expect(t, "device error", r.origin, want)
	if n := all(r.target); len(n) != 1 || n[0].Status != fabric.StatusOK {
		t.Errorf("the responder has read its memory, but reports %+v", n)
	}
}

func TestPutIntoDevice(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	copy(r.local.Bytes(), "abc")
	d := new(sink)
	dev, err := r.nics[1].ATU().RegisterDevice(there, d, 50, atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	p := r.put(3, rma.NotifyRequester|rma.NotifyCompleter)
	if p.Remote, err = dev.Lend(0); err != nil {
		t.Fatal(err)
	}
	d.during = func() {
		if dev.Revoke() {
			t.Error("the device's memory was taken back while it was written to")
		}
	}
	if err := r.origin.Put(p); err != nil || string(d.data) != "abc" {
		t.Fatalf("%v, device got %q", err, d.data)
	}
	d.during = nil
	if a, b := all(r.origin), all(r.target); len(a) != 1 || len(b) != 1 {
		t.Fatalf("notifications %v and %v", a, b)
	}
	d.err = io.ErrClosedPipe
	if err := r.origin.Put(p); err != nil {
		t.Fatal(err)
	}
	if a, b := all(r.origin), all(r.target); len(a) != 1 || a[0].Status != fabric.StatusDevice || len(b) != 0 {
		t.Errorf("after a device error: notifications %v and %v", a, b)
	}
}

func TestClosedEndpoint(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	if r.origin.VPID() != here {
		t.Errorf("VPID %d", r.origin.VPID())
	}
	if err := r.origin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.origin.Close(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if err := r.origin.Get(r.get(1, 0)); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Get: %v", err)
	}
	if err := r.origin.Put(r.put(1, 0)); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Put: %v", err)
	}
	fabrictest.OpenRMA(t, r.nics[0], here, rma.Config{}) // free again
	if _, err := r.nics[0].OpenRMA(here, rma.Config{}); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("open twice: %v", err)
	}
	if _, err := r.nics[0].OpenRMA(256, rma.Config{}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("VPID 256: %v", err)
	}
	for _, n := range []int{-1, 1, 3, 1 << 17} {
		if _, err := r.nics[0].OpenRMA(7, rma.Config{Notifications: n}); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("queue of %d: %v", n, err)
		}
	}
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	r := newRig(t, 64<<10, rma.Config{})
	r.origin.OnInterrupt(func() {})
	im := rma.PutImmediateReq{Len: 9, Remote: r.remoteNLA, Node: 1, VPID: there, Notify: rma.NotifyRequester}
	late := r.get(100, rma.NotifyCompleter)
	late.Remote += 64 << 10
	for name, f := range map[string]func() error{
		"get":           func() error { return r.origin.Get(r.get(64<<10, rma.NotifyCompleter|rma.NotifyResponder)) },
		"put":           func() error { return r.origin.Put(r.put(64<<10, rma.NotifyRequester|rma.NotifyCompleter)) },
		"put immediate": func() error { return r.origin.PutImmediate(im) },
		"refused":       func() error { return r.origin.Get(late) },
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(200, func() {
				r.origin.EnableInterrupt()
				if err := f(); err != nil {
					t.Fatal(err)
				}
				if _, ok := r.origin.Next(); !ok {
					t.Fatal("no notification")
				}
				r.target.Next()
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
