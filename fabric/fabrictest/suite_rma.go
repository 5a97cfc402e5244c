package fabrictest

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// transferRig is an origin with a region for both directions, and a target.
type transferRig struct {
	origin, target *rma.Endpoint
	local, remote  *atu.Region
	nla            atu.NLA
}

func newTransferRig(t *testing.T, l Link, size int, shared bool) (r transferRig) {
	t.Helper()
	nics := l.New(t, 2)
	r.origin, r.target = OpenRMA(t, nics[0], vpid, rma.Config{}), OpenRMA(t, nics[1], vpid, rma.Config{})
	for i, p := range []**atu.Region{&r.local, &r.remote} {
		mem := make([]byte, size)
		if shared {
			var err error
			if mem, err = nics[i].ATU().Alloc(size); err != nil {
				t.Fatal(err)
			}
		}
		region, err := nics[i].ATU().Register(vpid, mem, atu.Read|atu.Write)
		if err != nil {
			t.Fatal(err)
		}
		*p = region
	}
	var err error
	if r.nla, err = r.remote.Lend(0); err != nil {
		t.Fatal(err)
	}
	return r
}

func fillBytes(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*31 + i>>8 + seed)
	}
}

func testTransfers(t *testing.T, l Link) {
	for _, shared := range []bool{true, false} {
		if l.Ports && !shared {
			continue
		}
		r := newTransferRig(t, l, 1<<20, shared)
		for seed, size := range []int{1, 9, 64, 65, 496, 4096, 65536, 1 << 20} {
			fillBytes(r.remote.Bytes()[:size], seed)
			clear(r.local.Bytes()[:size])
			if err := r.origin.Get(rma.GetReq{Local: r.local.NLA(), Remote: r.nla, Len: size, Node: 1, VPID: vpid,
				Notify: rma.NotifyCompleter | rma.NotifyResponder}); err != nil {
				t.Fatal(err)
			}
			want := rma.Notification{Writer: rma.Completer, Command: rma.CommandGet, Node: 1, VPID: vpid, Len: size,
				Local: rma.LastFragment(r.local.NLA(), size)}
			if n := awaitNotification(t, r.origin); n != want {
				t.Errorf("GET: %+v, want %+v", n, want)
			}
			if !bytes.Equal(r.local.Bytes()[:size], r.remote.Bytes()[:size]) {
				t.Errorf("GET of %d bytes: wrong data", size)
			}
			want.Writer, want.Node, want.Local = rma.Responder, 0, rma.LastFragment(r.nla, size)
			if n := awaitNotification(t, r.target); n != want {
				t.Errorf("GET, target: %+v, want %+v", n, want)
			}

			fillBytes(r.local.Bytes()[:size], seed+100)
			if err := r.origin.Put(rma.PutReq{Local: r.local.NLA(), Remote: r.nla, Len: size, Node: 1, VPID: vpid,
				Notify: rma.NotifyRequester | rma.NotifyCompleter}); err != nil {
				t.Fatal(err)
			}
			want = rma.Notification{Writer: rma.Requester, Command: rma.CommandPut, Node: 1, VPID: vpid, Len: size,
				Local: rma.LastFragment(r.local.NLA(), size)}
			if n := awaitNotification(t, r.origin); n != want {
				t.Errorf("PUT: %+v, want %+v", n, want)
			}
			if !bytes.Equal(r.local.Bytes()[:size], r.remote.Bytes()[:size]) {
				t.Errorf("PUT of %d bytes: wrong data", size)
			}
			want.Writer, want.Node, want.Local = rma.Completer, 0, rma.LastFragment(r.nla, size)
			if n := awaitNotification(t, r.target); n != want {
				t.Errorf("PUT, target: %+v, want %+v", n, want)
			}
		}
		if err := r.origin.PutImmediate(rma.PutImmediateReq{Data: [9]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, Len: 9, Remote: r.nla,
			Node: 1, VPID: vpid, Notify: rma.NotifyRequester | rma.NotifyCompleter}); err != nil {
			t.Fatal(err)
		}
		if n := awaitNotification(t, r.origin); n.Status != fabric.StatusOK || n.Command != rma.CommandPutImmediate {
			t.Errorf("immediate PUT: %+v", n)
		}
		if n := awaitNotification(t, r.target); n.Command != rma.CommandPutImmediate || r.remote.Bytes()[8] != 9 {
			t.Errorf("immediate PUT, target: %+v, %d", n, r.remote.Bytes()[:9])
		}
		Eventually(t, "the regions are free", func() bool { return r.remote.Revoke() && r.local.Revoke() })
	}
}

func testRefusals(t *testing.T, l Link) {
	r := newTransferRig(t, l, 4096, true)
	stale := r.nla
	var err error
	if r.nla, err = r.remote.Lend(0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		remote atu.NLA
		n      int
		vpid   fabric.VPID
		want   fabric.Status
	}{
		{"old generation", stale, 64, vpid, fabric.StatusProtection},
		{"out of bounds", r.nla + 4000, 97, vpid, fabric.StatusProtection},
		{"unmapped", r.nla + 1<<20, 1, vpid, fabric.StatusProtection},
		{"VPID not open", r.nla, 64, 7, fabric.StatusNoVPID},
	} {
		get := rma.GetReq{Local: r.local.NLA(), Remote: tt.remote, Len: tt.n, Node: 1, VPID: tt.vpid, Notify: rma.NotifyCompleter}
		if err := r.origin.Get(get); err != nil {
			t.Fatal(err)
		}
		if n := awaitNotification(t, r.origin); n.Status != tt.want {
			t.Errorf("GET, %s: %v", tt.name, n.Status)
		}
		put := rma.PutReq{Local: r.local.NLA(), Remote: tt.remote, Len: tt.n, Node: 1, VPID: tt.vpid, Notify: rma.NotifyRequester}
		if err := r.origin.Put(put); err != nil {
			t.Fatal(err)
		}
		if n := awaitNotification(t, r.origin); n.Status != tt.want {
			t.Errorf("PUT, %s: %v", tt.name, n.Status)
		}
	}
	if !r.remote.Revoke() || !r.local.Revoke() {
		t.Error("a region stays busy after a refusal")
	}
}

type device struct {
	mu  sync.Mutex
	got []byte
	err error
}

func (d *device) WriteAt(p foreign.Memory, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	d.got = p.AppendTo(d.got)
	return p.Len(), nil
}

// A GET into a device is one call of its WriteAt.
func testDevice(t *testing.T, l Link) {
	nics := l.New(t, 2)
	origin := OpenRMA(t, nics[0], vpid, rma.Config{})
	OpenRMA(t, nics[1], vpid, rma.Config{})
	mem, err := nics[1].ATU().Alloc(60000)
	if err != nil {
		t.Fatal(err)
	}
	fillBytes(mem, 3)
	src, err := nics[1].ATU().Register(vpid, mem, atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	nla, err := src.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	var d device
	dst, err := nics[0].ATU().RegisterDevice(vpid, &d, 1<<20, atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	get := rma.GetReq{Local: dst.NLA(), Remote: nla, Len: len(mem), Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}
	if err := origin.Get(get); err != nil {
		t.Fatal(err)
	}
	if n := awaitNotification(t, origin); n.Status != fabric.StatusOK || !bytes.Equal(d.got, mem) {
		t.Errorf("%+v, %d bytes", n, len(d.got))
	}
	d.mu.Lock()
	d.err = errors.New("no")
	d.mu.Unlock()
	if err := origin.Get(get); err != nil {
		t.Fatal(err)
	}
	if n := awaitNotification(t, origin); n.Status != fabric.StatusDevice {
		t.Errorf("a device that refuses: %+v", n)
	}
}

func testOverrun(t *testing.T, l Link) {
	nics := l.New(t, 2)
	origin, target := OpenRMA(t, nics[0], vpid, rma.Config{}), OpenRMA(t, nics[1], vpid, rma.Config{Notifications: 8})
	local, remote := Register(t, nics[0], vpid, 64, atu.Write), Register(t, nics[1], vpid, 64, atu.Read)
	nla, err := remote.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if err := origin.Get(rma.GetReq{Local: local.NLA(), Remote: nla, Len: 64, Node: 1, VPID: vpid,
			Notify: rma.NotifyCompleter | rma.NotifyResponder}); err != nil {
			t.Fatal(err)
		}
		want := fabric.StatusOK
		if i >= 4 {
			want = fabric.StatusOverrun
		}
		if n := awaitNotification(t, origin); n.Status != want {
			t.Errorf("GET %d: %v, want %v", i, n.Status, want)
		}
	}
	if !errors.Is(target.Err(), fabric.ErrOverrun) {
		t.Errorf("target: %v", target.Err())
	}
}

// More operations than a link runs at a time: each ends, once.
func testManyTransfers(t *testing.T, l Link) {
	ops := max(scaledTo(1500), 300) // more than the 256 of link/shm
	r := newTransferRig(t, l, 8192, true)
	fillBytes(r.remote.Bytes(), 1)
	for i := range ops {
		off := atu.NLA(i % 4 * 1024)
		if err := r.origin.Get(rma.GetReq{Local: r.local.NLA() + off, Remote: r.nla + off, Len: 1024, Node: 1, VPID: vpid,
			Notify: rma.NotifyCompleter}); err != nil {
			t.Fatal(err)
		}
	}
	for range ops {
		if n := awaitNotification(t, r.origin); n.Status != fabric.StatusOK {
			t.Fatal(n)
		}
	}
	if _, ok := r.origin.Next(); ok {
		t.Error("one notification too many")
	}
	Eventually(t, "the region is free", r.remote.Revoke)
	if !bytes.Equal(r.local.Bytes()[:4096], r.remote.Bytes()[:4096]) {
		t.Error("wrong data")
	}
}
