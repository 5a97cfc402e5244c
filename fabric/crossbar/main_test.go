package crossbar

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/topo"
	"exnet/foreign"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// line returns the crossbars of nodes 0 to n-1 in a row.
func line(tb testing.TB, n int) *Crossbars {
	tb.Helper()
	t, err := topo.NewMesh(topo.Dims{n, 1, 1}, 0)
	if err != nil {
		tb.Fatal(err)
	}
	x, err := New(t)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// target is the link's port below the one under test.
type target struct {
	link.Port
	err     error
	remote  bool // flows are link.Remote
	watched uint64
	commits int
	sink    link.Sink
	put     []byte
}

func (p *target) OpenFlow(_, _ fabric.VPID, _ link.Credit) (link.Flow, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.remote {
		return &remoteFlow{(*targetFlow)(p)}, nil
	}
	return (*targetFlow)(p), nil
}

func (p *target) Get(_ link.Get, s link.Sink) { p.sink = s }

func (p *target) Put(_ link.Put, data []byte, d link.Done) {
	p.put = data
	d.Done(fabric.StatusOK)
}

type targetFlow target

func (*targetFlow) ID() uint16 { return 7 }
func (*targetFlow) Limit() int { return 9 }
func (*targetFlow) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	return nil, 0, fabric.ErrAgain
}
func (f *targetFlow) Commit(_, _ uint64) { f.commits++ }
func (*targetFlow) Raise()               {}

type remoteFlow struct{ *targetFlow }

func (*remoteFlow) Consumed() uint64     { return 11 }
func (f *remoteFlow) Watch(total uint64) { f.watched = total }

// origin is the NIC that waits for the end of an operation.
type origin struct {
	pieces [][2]int
	done   []fabric.Status
}

func (o *origin) Data(off int, p foreign.Memory) error {
	o.pieces = append(o.pieces, [2]int{off, p.Len()})
	return fabric.ErrDevice
}

func (o *origin) Done(s fabric.Status) { o.done = append(o.done, s) }

// request is a GET; what it asks for does not matter here.
func request() link.Get { return link.Get{Remote: atu.NLA(1), Len: 1} }
