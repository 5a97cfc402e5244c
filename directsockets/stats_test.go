package directsockets_test

import (
	"io"
	"testing"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// TestStatsAfterClose: a closed connection keeps what it has carried, also when its line of the
// table has become another connection's.
func TestStatsAfterClose(t *testing.T) {
	for _, direct := range []bool{false, true} {
		name := map[bool]string{false: "shadow", true: "direct"}[direct]
		t.Run(name, func(t *testing.T) {
			broker := startBroker(t)
			cfg := directsockets.Config{Broker: broker, Eager: direct, UpgradeSends: 100}
			connect := func(sends int) (c, s *directsockets.Conn) {
				c, s = pair(t, cfg, cfg)
				if direct {
					makeDirect(t, c, s)
				}
				for range sends {
					if _, err := c.Write([]byte("request")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(s, make([]byte, 7)); err != nil {
						t.Fatal(err)
					}
				}
				return c, s
			}
			c, s := connect(1)
			want := c.Stats()
			if want.Direct() != direct {
				t.Fatal(want)
			}
			want.RX, want.TX = directsockets.ModeClosed, directsockets.ModeClosed
			for _, end := range []*directsockets.Conn{c, s} {
				if err := end.Close(); err != nil {
					t.Fatal(err)
				}
			}
			connect(3)
			got := c.Stats()
			if got.RX != want.RX || got.TX != want.TX || got.Reason != want.Reason || got.Device != want.Device {
				t.Errorf("%v, want %v", got, want)
			}
			for _, i := range []int{segment.SentDirect, segment.ReceivedDirect, segment.SentShadow, segment.ReceivedShadow, segment.SentVELOLast, segment.RingSize} {
				if got.Counters[i] != want.Counters[i] {
					t.Errorf("counter %d is %d, want %d", i, got.Counters[i], want.Counters[i])
				}
			}
		})
	}
}
