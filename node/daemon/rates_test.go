package daemon

import (
	"testing"
	"time"

	"exnet/fabric/emp"
	"exnet/fabric/fabrictest"
	"exnet/fabric/velo"
)

func TestRates(t *testing.T) {
	x, y := fabrictest.NewNIC(t, 1), fabrictest.NewNIC(t, 2)
	from, to := fabrictest.OpenVELO(t, x, 3, velo.Config{}), fabrictest.OpenVELO(t, y, 3, velo.Config{})
	lx, ly := fabrictest.JoinSHM(t, x, y)
	send := func(n int) {
		for range n {
			fabrictest.Eventually(t, "credit", func() bool { return from.Send(velo.Descriptor{Dst: 2, VPID: 3}, []byte{1}) == nil })
			fabrictest.Eventually(t, "message", func() bool { _, _, ok := to.Peek(); return ok })
			to.Advance()
		}
	}
	var here, there rates
	peers := func(l emp.Link) []emp.Peer { return []emp.Peer{{}, {Link: l}} }
	take := func(at time.Time) {
		here.takeSample(at, peers(lx))
		there.takeSample(at, peers(ly))
	}
	send(1) // what opens the flow
	begin := time.Now()
	take(begin)
	if tx, rx := here.ofLink(lx); tx != 0 || rx != 0 {
		t.Errorf("after one sample: %d, %d bytes a second", tx, rx)
	}
	send(100)
	take(begin.Add(2 * time.Second))
	const want = 100 * 128 / 2
	if tx, _ := here.ofLink(lx); tx != want {
		t.Errorf("%d bytes a second sent, want %d", tx, want)
	}
	if _, rx := there.ofLink(ly); rx != want {
		t.Errorf("%d bytes a second received, want %d", rx, want)
	}
	here.takeSample(begin.Add(3*time.Second), nil)
	if tx, rx := here.ofLink(lx); tx != 0 || rx != 0 || len(here.links) != 0 {
		t.Errorf("the link is gone: %d, %d bytes a second", tx, rx)
	}
}
