package ipstack

import (
	"sync/atomic"
	"testing"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/foreign"
)

// bufferPool lends transmit buffers of a Port that is connected to nothing.
type bufferPool struct {
	port *exteth.Port
	out  atomic.Int64
}

func newBufferPool(t testing.TB) *bufferPool {
	t.Helper()
	n, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	port, err := exteth.Open(n, exteth.Config{Receiver: nobody{}, Buffers: 4})
	if err != nil {
		t.Fatal(err)
	}
	p := &bufferPool{port: port}
	t.Cleanup(func() {
		if n := p.out.Load(); n != 0 {
			t.Errorf("%d transmit buffers not given back", n)
		}
		if err := port.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// get returns a buffer that holds the IP packet p.
func (b *bufferPool) get(p []byte) *exteth.TxBuffer {
	b.out.Add(1)
	buf := b.port.Alloc()
	buf.Offload = exteth.Offload{}
	buf.SetPacket(copy(buf.Mem()[exteth.Headroom:], p))
	return buf
}

func (b *bufferPool) free(buf *exteth.TxBuffer) {
	b.out.Add(-1)
	b.port.Free(buf)
}

// nobody receives no frames.
type nobody struct{}

func (nobody) ReceiveFrame(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }
