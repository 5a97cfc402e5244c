package pressure

import (
	"fmt"
	"testing"

	"exnet/internal/longtest"
)

// A sender whose peer does not read has to wait, takes no memory meanwhile, and keeps
// nobody else from anything; when the peer reads everything is there.
func TestRootSlowReader(t *testing.T) {
	longtest.Skip(t)
	const port, few = 7000, 4
	total := size(64<<20, 1<<30)
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	layers(t, allKinds, func(t *testing.T, kind string) {
		server := b.serve(t, kind, "echo", port)
		other := a.run(t, kind, "hold", b.addr, port, few)
		other.expect(t, "held")
		a.wantDirect(t, other, few)
		sink := b.serve(t, kind, "sink", port+1)
		before := []usage{a.usage(t), b.usage(t)}
		pour := a.run(t, kind, "pour", b.addr, port+1, total)
		pour.expect(t, "connected")
		eventually(t, func() error {
			pour.tell(t, "beat")
			pour.expect(t, "beat")
			if kind != "tcp" && (a.direct(t, pour) != 1 || b.direct(t, sink) != 1) {
				return fmt.Errorf("it is not direct: %v, %v", a.whys(t, pour), b.whys(t, sink))
			}
			return nil
		})
		sink.tell(t, "enough")
		sink.expect(t, "taken")
		pour.tell(t, "pour")
		taken := pour.number(t, "full")
		if taken >= total {
			t.Fatalf("the sender got rid of all %d bytes", taken)
		}
		for range 20 {
			other.round(t)
		}
		at := []usage{pour.usage(t), sink.usage(t), a.usage(t), b.usage(t)}
		t.Logf("%d KiB are under way; sender: %v; reader: %v", taken>>10, at[0], at[1])
		const most = 64 << 10 // KiB; TCP's buffers are not counted
		for i, u := range at[:2] {
			if u.rss > most {
				t.Errorf("%s has %v", []string{"the sender", "the reader"}[i], u)
			}
		}
		for i, was := range before {
			if now := at[2+i]; now.rss > was.rss+most {
				t.Errorf("daemon %d had %v, and has %v", i+1, was, now)
			}
		}
		pour.tell(t, "go")
		sink.tell(t, "read")
		if got := sink.number(t, "sunk"); got != total {
			t.Errorf("%d bytes arrived, want %d", got, total)
		}
		pour.expect(t, "poured")
		other.tell(t, "end")
		other.expect(t, "closed")
		for _, p := range []*process{pour, sink, other, server} {
			p.end(t)
		}
	})
}
