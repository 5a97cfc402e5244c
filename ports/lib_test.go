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

// The benchmark's programs run; how fast is not a matter of this test.
func TestPingPong(t *testing.T) {
	n := nodes(t, 1)[0]
	for _, args := range [][]string{{"velo", "2000"}, {"rma", "200"}, {"register", "3"}} {
		t.Log(n.run(t, "plain", append([]string{"pingpong"}, args...)...))
		n.idle(t)
	}
}
