package selftest

import (
	"errors"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/lnet"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestLNetSelftest(t *testing.T) {
	for _, s := range []Spec{
		{Test: Ping, Threads: 1}, {Test: Ping, Threads: 64, Immediate: lnet.MaxImmediate},
		{Test: Read, Size: 4096, Threads: 3}, {Test: Read, Size: lnet.MaxPayload, Threads: 16},
		{Test: Write, Size: 4096, Threads: 64}, {Test: Write, Size: lnet.MaxPayload, Threads: 2},
	} {
		s.Duration = 20 * time.Millisecond
		if r, err := Run(t.Context(), s); err != nil || r.RPCs == 0 {
			t.Errorf("%+v: %+v, %v", s, r, err)
		}
	}
	if _, err := Run(t.Context(), Spec{Test: Read, Threads: 1}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("no size: %v", err)
	}
}

func TestDataCheck(t *testing.T) {
	b := make([]byte, 4096)
	fill(b, 7)
	if !right(b, 7) || right(b, 8) {
		t.Error("the number is not checked")
	}
	b[4000] ^= 1
	if right(b, 7) {
		t.Error("a changed byte is not found")
	}
}
