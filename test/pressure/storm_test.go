package pressure

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

// answerTime is what a host has for an answer to a ping, and for a connection with an
// exchange on it, in a storm: what users call "it still answers".
const answerTime = 30 * time.Second

// all are the counters of a node, with the kernel's of its interface and of UDP.
func (n *node) all(t *testing.T) map[string]int {
	t.Helper()
	s, err := n.status()
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]int)
	for _, c := range s.Counters {
		m[c.Name] = int(c.Value)
	}
	i := s.Interface.Stats
	m["exn0.rx_packets"], m["exn0.rx_dropped"] = int(i.RxPackets), int(i.RxDropped)
	m["exn0.tx_packets"], m["exn0.tx_dropped"] = int(i.TxPackets), int(i.TxDropped)
	var text []byte
	if err := n.ns.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, v := range f[1:] {
			m["udp."+names[i+1]], _ = strconv.Atoi(v)
		}
		break
	}
	return m
}

// growth is what counters have grown by, those that have.
func growth(before, now map[string]int) map[string]int {
	m := make(map[string]int)
	for k, v := range now {
		if d := v - before[k]; d != 0 {
			m[k] = d
		}
	}
	return m
}

// list shows counters by name.
func list(m map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, " %s=%d", k, m[k])
	}
	return b.String()
}

// answers has a node ping another, connect to it, and have it start a program, as long
// as it takes; each within answerTime.
func (n *node) answers(t *testing.T, to *node, port int, d time.Duration) (pings int, slowest time.Duration) {
	t.Helper()
	p, err := n.pinger()
	if err != nil {
		t.Fatal(err)
	}
	defer p.conn.Close()
	for start := time.Now(); time.Since(start) < d; time.Sleep(5 * time.Millisecond) {
		took, err := p.ping(to.addr, 1, pings, answerTime)
		if err != nil {
			t.Fatal(err)
		}
		pings++
		slowest = max(slowest, took)
	}
	if port == 0 {
		return pings, slowest
	}
	start := time.Now()
	c := n.run(t, "tcp", "hold", to.addr, port, 1)
	c.expectIn(t, "held", answerTime)
	c.tell(t, "end")
	c.expect(t, "closed")
	c.end(t)
	connected := time.Since(start)
	start = time.Now()
	cmd := exec.Command("true")
	if err := to.ns.Run(cmd); err != nil {
		t.Error(err)
	}
	t.Logf("a connection: %v; a program: %v", connected.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	return pings, slowest
}

// Figure 5.4's promise: however many small frames come, the host goes on to work. What
// is lost is counted where it is lost.
func TestRootReceiveStorm(t *testing.T) {
	longtest.Skip(t)
	const port, echo = 9, 7000
	d := time.Duration(size(1, 10)) * time.Second
	for _, mode := range []string{"napi", "interrupt"} {
		t.Run("mode="+mode, func(t *testing.T) {
			l := newLab(t, 4, "--mode", mode)
			victim, bystander := l.nodes[0], l.nodes[3]
			victim.serve(t, "tcp", "echo", echo)
			sink := victim.serve(t, "tcp", "count", port)
			idle, idleWorst := bystander.answers(t, victim, echo, d/2)
			before := victim.all(t)
			var froms []map[string]int
			var storms []*process
			for _, n := range l.nodes[1:3] {
				froms = append(froms, n.all(t))
				s := n.run(t, "tcp", "storm", victim.addr, port)
				s.expect(t, "storming")
				storms = append(storms, s)
			}
			start := time.Now()
			pings, slowest := bystander.answers(t, victim, echo, d)
			sent := 0
			for _, s := range storms {
				s.tell(t, "end")
				sent += s.number(t, "sent")
				s.number(t, "refused")
			}
			took := time.Since(start).Seconds()
			// What is on its way takes its time; then every frame is somewhere.
			var now, g map[string]int
			got, lost := 0, 0
			eventually(t, func() error {
				sink.tell(t, "count")
				got, lost = sink.number(t, "got"), 0
				waited := 0 // at most: too many waited for the neighbour
				now = growth(before, victim.all(t))
				for k, v := range now {
					if k == "udp.RcvbufErrors" || strings.HasPrefix(k, "ipstack.") && strings.Contains(k, "drop") {
						lost += v
					}
				}
				for i, n := range l.nodes[1:3] {
					g = growth(froms[i], n.all(t))
					for k, v := range g {
						if k == "exn0.tx_dropped" || strings.HasPrefix(k, "ipstack.") && strings.Contains(k, "drop") {
							lost += v
						}
					}
					// What the interface refuses ipstack counts as well, not what it drops later.
					lost += max(0, g["exn.tx_stalled"]-g["ipstack.tx_drop_busy"])
					waited += g["ipstack.netstack_tx_errors"]
				}
				if missing := sent - got - lost; missing < 0 || missing > waited {
					return fmt.Errorf("%d frames were sent, %d arrived, %d were counted as lost, at most %d while they waited for the neighbour: %d are missing\nreceiver:%s\na sender:%s",
						sent, got, lost, waited, missing, list(now), list(g))
				}
				return nil
			})
			t.Logf("%d frames a second sent, %d received by the program (%.0f %%)", int(float64(sent)/took), int(float64(got)/took), 100*float64(got)/float64(sent))
			t.Logf("pings: %d in the storm, the slowest took %v; %d before, %v", pings, slowest.Round(time.Microsecond), idle, idleWorst.Round(time.Microsecond))
			t.Logf("%d frames for an interrupt, %d for a poll, budget exhausted %d times; lost: %d, all counted",
				now["napi.velo.frames"]/max(now["napi.velo.interrupts"], 1), now["napi.velo.frames"]/max(now["napi.velo.polls"], 1),
				now["napi.velo.exhausted"], lost)
			t.Logf("the receiver:%s", list(now))
			t.Logf("a sender:%s", list(g))
			if pings < 3 {
				t.Errorf("%d pings", pings)
			}
		})
	}
}

// A node that sends broadcasts as fast as it can does not keep the others from TCP, nor
// from direct sockets.
func TestRootBroadcastStorm(t *testing.T) {
	longtest.Skip(t)
	const port = 7000
	d := time.Duration(size(1, 10)) * time.Second
	l := newLab(t, 8)
	loud := l.nodes[0]
	var streams []*process
	for i, kind := range allKinds {
		from, to := l.nodes[1+2*i], l.nodes[2+2*i]
		to.serve(t, kind, "echo", port)
		s := from.run(t, kind, "stream", to.addr, port, 1)
		s.expect(t, "streaming")
		streams = append(streams, s)
	}
	at := func() (all []int) {
		for _, s := range streams {
			s.tell(t, "where")
			all = append(all, s.number(t, "at"))
		}
		return all
	}
	quiet := at()
	time.Sleep(d)
	begin := at()
	before := loud.all(t)
	storm := loud.run(t, "tcp", "storm", "10.2.0.255", 9)
	storm.expect(t, "storming")
	time.Sleep(d)
	end := at()
	pings, slowest := l.nodes[7].answers(t, l.nodes[1], 0, d)
	for i, s := range streams {
		s.moves(t)
		t.Logf("sockets=%s: %d MiB before the storm, %d in it", s.kind, (begin[i]-quiet[i])>>20, (end[i]-begin[i])>>20)
	}
	storm.tell(t, "end")
	t.Logf("%d broadcasts; %d pings of others, the slowest took %v", storm.number(t, "sent"), pings, slowest)
	t.Logf("the sender:%s", list(growth(before, loud.all(t))))
	for _, s := range streams {
		s.tell(t, "end")
		s.number(t, "streamed")
	}
}
