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
		{Test: Read, Size: 4096, Threads: 3, Full: true}, {Test: Read, Size: lnet.MaxPayload, Threads: 16},
		{Test: Write, Size: 4096, Threads: 64}, {Test: Write, Size: lnet.MaxPayload, Threads: 2, Full: true},
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
	for _, s := range []Spec{{Full: true}, {}} {
		b := make([]byte, 3*4096-512)
		s.fillData(b, 7)
		if !s.dataRight(b, 7) || s.dataRight(b, 8) {
			t.Error("the number is not checked")
		}
		for at := range b {
			simple := at%4096 < 8 || at%4096 >= 4088
			b[at] ^= 1
			if s.dataRight(b, 7) == (s.Full || simple) {
				t.Errorf("full %t: byte %d", s.Full, at)
			}
			b[at] ^= 1
		}
	}
}
