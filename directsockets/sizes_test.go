package directsockets_test

import (
	"io"
	"testing"

	"exnet/directsockets"
)

// A server takes segments up to what it allows; of larger ones it refuses all, and the connection
// stays whole.
func TestServerCapsRing(t *testing.T) {
	for _, test := range []struct {
		name           string
		client, server directsockets.Config
		direct         bool
	}{
		{"as much as allowed", directsockets.Config{Ring: 4 << 20, Slots: 4096}, directsockets.Config{}, true},
		{"ring", directsockets.Config{Ring: 4<<20 + 4096}, directsockets.Config{}, false},
		{"huge ring", directsockets.Config{Ring: 1 << 30}, directsockets.Config{}, false},
		{"slots", directsockets.Config{Slots: 2048}, directsockets.Config{MaxSlots: 1024}, false},
		{"less allowed", directsockets.Config{}, directsockets.Config{MaxRing: 64 << 10}, false},
		{"fewer slots allowed", directsockets.Config{}, directsockets.Config{MaxSlots: 64}, false},
		{"more allowed", directsockets.Config{Ring: 8 << 20, Slots: 4096}, directsockets.Config{MaxRing: 8 << 20, MaxSlots: 4096}, true},
		{"as large as the server's own", directsockets.Config{Ring: 8 << 20, Slots: 4096}, directsockets.Config{Ring: 8 << 20, Slots: 4096}, true},
		{"only the server's side counts", directsockets.Config{MaxRing: 1, MaxSlots: 1}, directsockets.Config{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := startBroker(t)
			test.client.Broker, test.server.Broker, test.client.Eager = client, client, true
			c, s := pair(t, test.client, test.server)
			if test.direct {
				makeDirect(t, c, s)
				return
			}
			var buf [1]byte
			exchange := func() {
				for _, way := range [][2]*directsockets.Conn{{c, s}, {s, c}} {
					if _, err := way[0].Write([]byte{1}); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(way[1], buf[:]); err != nil {
						t.Fatal(err)
					}
				}
			}
			eventually(t, "both ends say that the segment is refused", func() bool {
				exchange()
				if c.Stats().Direct() || s.Stats().Direct() {
					t.Fatal("it is direct")
				}
				return c.Stats().Reason == directsockets.ReasonRefused && s.Stats().Reason == directsockets.ReasonRefused
			})
			// No byte is lost, and none goes direct later.
			for range 1000 {
				exchange()
			}
			if a, b := c.Stats(), s.Stats(); a.Direct() || b.Direct() || a.Reason != directsockets.ReasonRefused || b.Reason != directsockets.ReasonRefused {
				t.Error(a, b)
			}
		})
	}
}
