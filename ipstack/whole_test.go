package ipstack

import (
	"bytes"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A packet goes to the host without a copy if it lies in one piece.
func TestWholeOf(t *testing.T) {
	data := pattern(300)
	newPacket := func(reserve int, pieces ...[]byte) *stack.PacketBuffer {
		var b buffer.Buffer
		for _, p := range pieces {
			if err := b.Append(buffer.NewViewWithData(p)); err != nil {
				t.Fatal(err)
			}
		}
		return stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: reserve, Payload: b})
	}
	parsed := newPacket(0, data)
	if _, ok := parsed.NetworkHeader().Consume(20); !ok {
		t.Fatal("Consume")
	}
	for _, tt := range []struct {
		name string
		pkt  *stack.PacketBuffer
		ok   bool
	}{
		{"one piece", newPacket(0, data), true},
		{"room for headers", newPacket(64, data), true},
		{"a header was parsed", parsed, true},
		{"two pieces", newPacket(0, data[:100], data[100:]), false},
		{"nothing", newPacket(0), false},
	} {
		if p, ok := wholeOf(tt.pkt); ok != tt.ok || ok && !bytes.Equal(p, data) {
			t.Errorf("%s: %v, %d bytes", tt.name, ok, len(p))
		}
		tt.pkt.DecRef()
	}
}
