package ports

import "testing"

// What the API does, as golden values, in plain form and under the sanitizers.
func TestGolden(t *testing.T) {
	for _, kind := range []string{"plain", "asan"} {
		t.Run(kind, func(t *testing.T) {
			n := nodes(t, 1)[0]
			n.run(t, kind, "golden")
			n.idle(t)
		})
	}
}

// The benchmark's programs run, and the node counts what goes through their ports; how fast is not
// a matter of this test.
func TestPingPong(t *testing.T) {
	n := nodes(t, 1)[0]
	for _, args := range [][]string{{"velo", "2000"}, {"rma", "200"}, {"register", "3"}} {
		t.Log(n.run(t, "plain", append([]string{"pingpong"}, args...)...))
		n.idle(t)
	}
	got := n.Stats()
	const messages = 2 * (2000 + 200) // from each end, with those that warm up
	if got.Opened != 5 || got.VELOSent != messages || got.VELOReceived != messages {
		t.Errorf("%+v, want 5 ports and %d messages", got, messages)
	}
	const bytes = 3 * 200 * 64 << 10 // in three passes
	if got.RMAPutBytes < bytes || got.RMAGetBytes < bytes || got.RMASent == 0 || got.RMAReceived < got.RMASent {
		t.Errorf("%+v, want %d bytes each way", got, bytes)
	}
}
