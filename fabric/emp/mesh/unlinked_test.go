package mesh

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"exnet/fabric"
)

// Each link's end is told once, before the next link is made; and then that the node has left, also
// where it has begun anew before its link had ended here.
func TestUnlinked(t *testing.T) {
	type end struct {
		node fabric.NodeID
		left bool
	}
	var mu sync.Mutex
	var ends []end
	told := func() []end {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ends)
	}
	hold, release := make(chan struct{}), make(chan struct{})
	held := sync.OnceFunc(func() { close(hold) })
	one := open(t, nil, selfOf(1), func(c *Config) {
		note := func(e end) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, e)
		}
		c.OnUnlinked = func(n fabric.NodeID) { note(end{n, false}) }
		c.OnLeft = func(n fabric.NodeID) {
			note(end{n, true})
			held()
			<-release
		}
	}).run()
	two := open(t, nil, selfOf(2), nil, one).run()
	links := func() uint64 {
		for _, p := range one.Peers() {
			if p.Node == 2 && p.Link != nil {
				return p.Links
			}
		}
		return 0
	}
	want := []end{}
	for cut := range uint64(2) {
		eventually(t, "linked", func() bool { return links() == cut+1 })
		if got := told(); !slices.Equal(got, want) {
			t.Fatalf("before cut %d: %v", cut, got)
		}
		two.mu.Lock()
		s := two.sessions[1]
		two.mu.Unlock()
		s.end(errors.New("cut"))
		want = append(want, end{2, false})
	}
	eventually(t, "linked", func() bool { return links() == 3 })
	two.stop()
	<-hold
	again := open(t, nil, selfOf(2), nil, one).run()
	eventually(t, "begun anew", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.sessions[2].desc.Token == again.cfg.Self.Token
	})
	close(release)
	again.awaits(1)
	eventually(t, "linked", func() bool { return links() > 0 })
	if got, want := told(), append(want, end{2, false}, end{2, true}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
