package segment

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestWhole: a send of a few VELO messages is found whole, or not at all, as on TCP.
func TestWhole(t *testing.T) {
	const sends = 20000
	size := func(i int) int { return 121 + i*7%360 }
	client, server := promoted(t, Config{})
	var done atomic.Int64
	go func() {
		defer done.Store(sends)
		buf := make([]byte, 480)
		for i := range sends {
			n, err := server.Recv(buf)
			for k := 0; err == ErrAgain; k++ {
				if k%1024 == 1023 {
					runtime.Gosched()
				}
				n, err = server.Recv(buf)
			}
			if n != size(i) || err != nil {
				t.Errorf("%d bytes of send %d, want %d: %v", n, i, size(i), err)
				return
			}
			done.Store(int64(i + 1))
		}
	}()
	for i := range sends {
		if n, err := client.Send(make([]byte, size(i))); n != size(i) || err != nil {
			t.Fatal(n, err)
		}
		for k := 0; done.Load() <= int64(i); k++ {
			if k%1024 == 1023 {
				runtime.Gosched()
			}
		}
	}
}
