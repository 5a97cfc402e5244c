package datagram

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/leaktest"
	"exnet/internal/shm"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var someone = Info{From: netip.MustParseAddrPort("127.0.0.1:4000"), To: netip.MustParseAddrPort("127.0.0.1:53")}

// flow is both ends of a flow, mapped twice.
type flow struct {
	tx   *Tx
	rx   *Rx
	seg  *Segment // S's
	peer *Segment // D's
}

// newFlow makes one whose ends know each other. bound: see SPEC 10.5.
func newFlow(t testing.TB, ring int, bound uint32) *flow {
	t.Helper()
	s, err := Create(someone, ring)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Map(s.Fd())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{tx: NewTx(s, pair[0], shm.Nanotime()-int64(SoftirqTime), new(KernelSends)), seg: s, peer: d}
	if attached, refused := f.tx.Attached(); attached || refused {
		t.Fatalf("attached %v, refused %v before anybody is there", attached, refused)
	}
	f.rx = NewRx(d, pair[1], bound)
	t.Cleanup(func() { f.tx.Close(); f.rx.Close() })
	return f
}

// open has the flow be settled and not armed.
func (f *flow) open(t testing.TB) {
	t.Helper()
	f.rx.Dry(f.rx.Kernel())
	f.rx.Disarm()
	if attached, _ := f.tx.Attached(); !attached || !f.tx.Settled(shm.Nanotime()) {
		t.Fatal("the flow is not settled")
	}
}

// receive takes what is due; false: there is nothing.
func (f *flow) receive(t testing.TB) (p []byte, m Meta, ok bool) {
	t.Helper()
	rec, ok, err := f.rx.Next()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil, m, false
	}
	p = make([]byte, rec.Len)
	if n := f.rx.CopyTo(p); n != rec.Len {
		t.Fatalf("%d bytes of %d", n, rec.Len)
	}
	f.rx.Consume()
	return p, rec.Meta, true
}
