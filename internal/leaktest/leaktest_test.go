package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/refs"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// leaving is tests that leave a goroutine.
type leaving func()

func (l leaving) Run() int { go l(); return 0 }

func runMain(l leaving) (code int) {
	Main(l, goleak.Cleanup(func(c int) { code = c }))
	return code
}

// A goroutine that ends late is none that was left.
func TestMainWaits(t *testing.T) {
	if code := runMain(func() { time.Sleep(2 * time.Second) }); code != 0 {
		t.Errorf("status %d", code)
	}
}

func TestMainFindsGoroutine(t *testing.T) {
	defer func(d time.Duration) { endWait = d }(endWait)
	endWait = 0
	end := make(chan struct{})
	code := runMain(func() { <-end })
	close(end)
	if code == 0 {
		t.Error("status 0")
	}
	None(t)
}

// So is a packet that a timer still has to send.
func TestPackets(t *testing.T) {
	refs.SetLeakMode(refs.LeaksPanic)
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData([]byte{1})})
	if noPackets() {
		t.Error("none found")
	}
	time.AfterFunc(time.Second, pkt.DecRef)
	Packets()
}
