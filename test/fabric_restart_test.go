package e2e

import (
	"strings"
	"testing"

	"exnet/internal/longtest"
)

// A node that ends as it is asked to, and comes back, ends no connection of its programs or of
// those at the other node, busy or idle: they go on by TCP, each byte once and in order.
func TestRootFabricRestarts(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	for kind, name := range []string{"client's node", "server's node", "client's node of one host", "server's node of one host"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			i := kind % 2
			c := newCarried(t, kind < 2, "--direct", "fabric:"+carriedPort)
			c.serve()
			talkers := make([]*talker, 6)
			for j := range talkers {
				if c.env = []string{"EXN_SIZES=1,64,4096,200000"}; j%3 == 2 {
					c.env = []string{"EXN_SIZES=64,4096", "EXN_PAUSE=0.4"}
				}
				before := c.count(0, "relay.attached")
				k := c.talk("10.2.0.2")
				k.until(t, "a direct connection", func() bool { return c.count(0, "relay.attached") > before && k.went() > 0 || ended(k) })
				talkers[j] = k
			}
			c.through(talkers[0], 1<<20)
			c.nodes[i].terminate(t)
			var went []int
			for _, k := range talkers {
				went = append(went, k.went())
			}
			c.up(i)
			c.linked()
			for j, k := range talkers {
				k.until(t, "more bytes, or the end", func() bool { return k.went() > went[j]+8192 || ended(k) })
				_ = k.in.Close() // it may have ended
				if out := k.wait(t); !strings.Contains(out, "\nok ") {
					t.Errorf("client %d says %s", j, out)
				}
			}
			c.clean(0, 1)
		})
	}
}
