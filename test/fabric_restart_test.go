package e2e

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/node/control"
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

// A node ends while the program at the other one makes no call: its connection has gone back to
// TCP, and status says so before the program knows it. The program goes on.
func TestRootFabricIdle(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "pgrep", "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	k := c.talk("10.2.0.2")
	c.through(k, 1<<20)
	c.path(0, "fabric")
	var all []control.Sockets
	c.tun(0, &all, "status", "--sockets")
	// exn-run speaks to the broker for its program.
	pid, err := strconv.Atoi(strings.TrimSpace(outputOf(t, ".", "pgrep", "-P", strconv.Itoa(all[0].Connections[0].PID))))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.nodes[1].terminate(t)
	c.path(0, "tcp")
	c.up(1)
	c.linked()
	c.path(0, "tcp")
	went := k.went()
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	k.until(t, "bytes by TCP", func() bool { return k.went() > went+1<<20 })
	c.path(0, "tcp")
	_ = k.in.Close() // it may have ended
	if out := k.wait(t); !strings.Contains(out, "\nok ") {
		t.Errorf("the client says %s", out)
	}
	c.clean(0, 1)
}
