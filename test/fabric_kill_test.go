package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

var (
	fabricKills = flag.Bool("fabric-kills", false, "every program, node and the cable on the way of a fabric socket, at every moment; minutes")
	fabricSoak  = flag.Duration("fabric-soak", 0, "`TIME` for which these are hit in any order after that")
)

// victim is what a cell of the matrix hits.
type victim int

const (
	victimClient victim = iota
	victimServer
	victimClientNode
	victimServerNode
	victimCable // cut until both nodes have noticed
	victimBlip  // cut for so short a time that nobody may notice
)

var victimNames = [...]string{"client", "server", "client's node", "server's node", "cable", "cable for a moment"}

// moments are when it is hit: what the client sends, and after how many bytes. closing: when the
// client has been told to end.
var moments = []struct {
	name, sizes string
	after       uint64
	closing     bool
}{
	{"offered", "1,64", 0, false},
	{"messages", "1,64,120", 20_000, false},
	{"ring", "65536,200000,1000000", 4 << 20, false},
	{"closing", "4096,200000", 1 << 20, true},
}

// killsMetrics is where the nodes serve metrics, each in its namespace.
const killsMetrics = "127.0.0.1:9464"

// Whatever is killed or cut on the way between two hosts that share a wire only, the programs see
// an end as of TCP, or go on, no byte is wrong, nothing is left of the connection, and the next one
// goes through the fabric.
func TestRootFabricKills(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3", "curl")
	checkLeaks(t)
	c := newCarriedOn(t, true, []string{"--metrics", killsMetrics}, "--direct", "fabric:"+carriedPort)
	c.serve()
	c.whole("10.2.0.2")
	hit := func(i int, v victim) bool {
		t.Logf("%s, %s", moments[i].name, victimNames[v])
		c.cell(i, v)
		return !t.Failed() // else it is in an unknown state
	}
	for i, m := range moments {
		for v := range victimNames {
			inCI := m.name == "ring" && victim(v) >= victimServerNode
			if (*fabricKills || inCI) && !hit(i, victim(v)) {
				return
			}
		}
	}
	for end := time.Now().Add(*fabricSoak); time.Now().Before(end); {
		if !hit(rand.IntN(len(moments)), victim(rand.IntN(len(victimNames)))) {
			return
		}
	}
}

// cell hits a victim at a moment.
func (c *carried) cell(moment int, v victim) {
	m := moments[moment]
	before := c.held()
	c.env = []string{"EXN_SIZES=" + m.sizes}
	offered, ends := c.count(0, "relay.opened"), strings.Count(c.server.out.String(), "ended")
	k := c.talk("10.2.0.2")
	k.until(c.t, "offer", func() bool { return c.count(0, "relay.opened") > offered })
	if m.after > 0 {
		c.through(k, m.after)
	}
	if m.closing {
		if err := k.in.Close(); err != nil {
			c.t.Error(err)
		}
	}
	c.hit(v, k)
	went := k.went()
	switch {
	case v == victimClient:
		// The server is judged below: it has ended the connection.
	case v == victimBlip || v == victimCable || v != victimServer && m.after == 0: // it goes on, on TCP if it was not direct yet
		if v == victimCable {
			c.parted()
		}
		c.revive(v)
		k.until(c.t, "more bytes, or the end", func() bool { return m.closing || k.went() > went || ended(k) })
		if v >= victimCable && !m.closing && strings.Contains(k.out.String(), "broken") {
			c.t.Errorf("a moment ended it: %s", k.out.String())
		}
		_ = k.in.Close() // it may be closed
		k.wait(c.t)
	default: // who is left hears of a node's end when that is back
		c.revive(v)
		k.until(c.t, "an end", func() bool { return ended(k) })
	}
	if v != victimServer && m.after > 0 {
		c.server.until(c.t, "end", func() bool { return strings.Count(c.server.out.String(), "ended") > ends })
	}
	if out := k.out.String(); strings.Contains(out, "other bytes") || strings.Contains(out, "more came back") {
		c.t.Errorf("the client says %s", out)
	}
	c.clean(0, 1)
	c.env = nil
	c.whole("10.2.0.2")
	c.nothingLeft(before)
}

// parted waits until no node has a link any more.
func (c *carried) parted() {
	c.t.Helper()
	eventually(c.t, func() error {
		for i := range c.nodes {
			if s := c.status(i); len(s.Peers) > 0 && s.Peers[0].State == "up" {
				return fmt.Errorf("node %d: %+v", 1+i, s.Peers)
			}
		}
		return nil
	})
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ended reports whether a client has come to an end, as it says.
func ended(k *talker) bool {
	out := k.out.String()
	return strings.Contains(out, "broken: ") || strings.Contains(out, "\nok ")
}

// hit kills or cuts.
func (c *carried) hit(v victim, k *talker) {
	c.t.Helper()
	switch v {
	case victimClient:
		k.stop()
	case victimServer:
		c.server.stop()
	case victimClientNode:
		c.nodes[0].stop()
	case victimServerNode:
		c.nodes[1].stop()
	default:
		c.cable("down")
	}
}

// revive undoes hit.
func (c *carried) revive(v victim) {
	c.t.Helper()
	switch v {
	case victimServer:
		if c.server.over() {
			c.serve()
		}
		return
	case victimClient:
		return
	case victimClientNode, victimServerNode:
		if i := int(v - victimClientNode); c.nodes[i].over() {
			c.up(i)
		}
	default:
		c.cable("up")
	}
	c.linked()
}

func (c *carried) cable(to string) {
	c.t.Helper()
	if out, err := runIn(c.t, c.spaces[0], nil, "ip", "link", "set", "eth0", to); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// level is what a process holds while nothing goes on: that must not grow.
type level struct {
	pid        int
	fds        map[string]int // descriptors by what they are of
	segments   int            // mappings of segments
	goroutines int            // of a node
}

// grown reports whether there is more than there was in the same process.
func (l level) grown(was level) bool {
	const scrape = 2 // goroutines of a connection to the metrics, which may be there still
	sum := func(all map[string]int) (n int) {
		for _, k := range all {
			n += k
		}
		return n
	}
	return l.pid == was.pid && (sum(l.fds) > sum(was.fds) || l.segments > was.segments || l.goroutines > was.goroutines+scrape)
}

// held is what the nodes and the server hold.
func (c *carried) held() (all [3]level) {
	c.t.Helper()
	for i, p := range []*process{c.nodes[0], c.nodes[1], c.server} {
		dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
		all[i] = level{pid: p.cmd.Process.Pid, fds: make(map[string]int)}
		fds, _ := os.ReadDir(dir + "fd")
		for _, fd := range fds {
			to, _ := os.Readlink(dir + "fd/" + fd.Name())
			kind, _, _ := strings.Cut(to, ":[") // without the inode
			all[i].fds[kind]++
		}
		maps, _ := os.ReadFile(dir + "maps")
		all[i].segments = strings.Count(string(maps), "/memfd:")
		if i < len(c.nodes) {
			all[i].goroutines = c.goroutines(i)
		}
	}
	return all
}

// goroutines is how many a node has.
func (c *carried) goroutines(i int) (n int) {
	c.t.Helper()
	out, err := runIn(c.t, c.spaces[i], nil, "curl", "-s", "http://"+killsMetrics+"/metrics")
	at := strings.Index(out, "\ngo_goroutines ")
	if err == nil && at >= 0 {
		_, err = fmt.Sscanf(out[at:], "\ngo_goroutines %d", &n)
	}
	if err != nil || n == 0 {
		c.t.Errorf("goroutines of node %d: %v, %.200s", 1+i, err, out)
	}
	return n
}

// nothingLeft waits until no process holds more than it did before.
func (c *carried) nothingLeft(before [3]level) {
	c.t.Helper()
	eventually(c.t, func() error {
		for i, now := range c.held() {
			if now.grown(before[i]) {
				return fmt.Errorf("%s holds %+v, held %+v", [...]string{"node 1", "node 2", "the server"}[i], now, before[i])
			}
		}
		return nil
	})
}
