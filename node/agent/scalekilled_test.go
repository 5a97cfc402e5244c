package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// descriptors is how many a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(procDir, strconv.Itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestRootScale with an agent that is killed while all that goes on: no direct connection is lost,
// and the next agent serves what is there, and lets go of what leaves.
func TestRootScaleKilled(t *testing.T) {
	longtest.Nightly(t)
	const perSecond = 10
	netnstest.NeedFDs(t, uint64(*scaleNamespaces*20+*scaleConnections*4))
	l := newLab(t)
	l.halt()
	one := agentProcess(t, l)
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	many := l.start2(l.a, "many", "172.30.0.3:8080")
	ask := func() {
		t.Helper()
		if got := many.do("ask"); got != "ok" {
			t.Fatal(got)
		}
	}
	if got := many.do("open %d", *scaleConnections); got != "ok" {
		t.Fatal(got)
	}
	direct := func() (n int) {
		ask()
		for _, x := range l.connections(l.a) {
			if x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0 {
				n++
			}
		}
		return n
	}
	l.within(timeLimit, "all connections are direct", func() bool { return direct() == *scaleConnections })
	idlers := make([]*idler, *scaleNamespaces)
	for i := range idlers {
		idlers[i] = l.idle()
	}
	l.within(timeLimit, "all have a broker", func() bool { return brokers(t, idlers) == len(idlers) })
	churned := 0
	say := func(what string, of *chat, began time.Time, before time.Duration) {
		t.Helper()
		used, memory := processorTime(t, of.cmd.Process.Pid)
		t.Logf("%s, %d came and went: %d KiB, %d descriptors, %.2f of a processor", what, churned, memory,
			descriptors(t, of.cmd.Process.Pid), float64(used-before)/float64(time.Since(began)))
	}
	churn := func(what string, of *chat) {
		t.Helper()
		if of != nil {
			began := time.Now()
			before, _ := processorTime(t, of.cmd.Process.Pid)
			defer func() { say(what, of, began, before) }()
		}
		// They come ten a second, if the machine can, whatever the connections take meanwhile. Some
		// go at once, and are never found.
		end, asked := make(chan struct{}), make(chan string)
		go func() {
			defer close(asked)
			for {
				got := many.do("ask")
				select {
				case <-end:
					asked <- got
					return
				default:
				}
				if got != "ok" {
					asked <- got
					return
				}
			}
		}()
		var live []*idler
		leave := func(i *idler) {
			if err := i.end(); err != nil {
				t.Error(err)
			}
		}
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for began := time.Now(); time.Since(began) < *scaleChurn; <-tick.C {
			i := l.idle()
			if churned++; churned%3 == 0 {
				leave(i)
			} else if live = append(live, i); len(live) > perSecond {
				leave(live[0])
				live = live[1:]
			}
		}
		for _, i := range live {
			leave(i)
		}
		close(end)
		if got := <-asked; got != "ok" {
			t.Fatal(got)
		}
	}
	rest := func(what string, of *chat) { // how much it uses when nothing comes or goes
		began := time.Now()
		before, _ := processorTime(t, of.cmd.Process.Pid)
		time.Sleep(min(*scaleChurn, 5*time.Second))
		say(what, of, began, before)
	}
	rest("before", one)
	churn("in the churn", one)
	rest("after it", one)
	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = one.cmd.Wait() // it was killed
	churn("without an agent", nil)
	two := agentProcess(t, l)
	churn("in the churn, the next agent", two)
	l.within(timeLimit, "the next agent serves all", func() bool { return brokers(t, idlers) == len(idlers) })
	l.within(timeLimit, "and shows that all are direct still", func() bool { return direct() == *scaleConnections })
	before := descriptors(t, two.cmd.Process.Pid)
	for _, i := range idlers {
		if err := i.end(); err != nil {
			t.Error(err)
		}
	}
	churn("as those of before leave", two)
	// Each of them had several.
	l.within(timeLimit, "what was held for them is gone", func() bool {
		return descriptors(t, two.cmd.Process.Pid) <= before-2*len(idlers)
	})
	rest("at the end", two)
	ask()
	t.Logf("%d namespaces came and went", churned)
}
