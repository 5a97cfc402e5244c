package agent

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
)

// The long form: go test ./node/agent -run TestRootScale -agent.namespaces 200
// -agent.connections 2000 -agent.churn 2m
var (
	scaleNamespaces  = flag.Int("agent.namespaces", 20, "namespaces that an agent serves at once")
	scaleConnections = flag.Int("agent.connections", 100, "direct connections that stand meanwhile")
	scaleChurn       = flag.Duration("agent.churn", 2*time.Second, "how long namespaces come and go, up to ten a second")
)

// manyAsk makes connections, and asks on each: "open N", "ask".
func manyAsk(addr string) error {
	var all []net.Conn
	message := bytes.Repeat([]byte("0123456789abcdef"), 100)
	got := make([]byte, len(message))
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		err := func() error {
			if n, ok := strings.CutPrefix(commands.Text(), "open "); ok {
				k, _ := strconv.Atoi(n)
				for range k {
					c, err := directsockets.Dial("tcp", addr)
					if err != nil {
						return err
					}
					all = append(all, c)
				}
			}
			for range 5 {
				for _, c := range all {
					if _, err := c.Write(message); err != nil {
						return err
					}
					if _, err := io.ReadFull(c, got); err != nil {
						return err
					}
					if !bytes.Equal(got, message) {
						return errors.New("the echo differs")
					}
				}
			}
			return nil
		}()
		if err == nil {
			fmt.Println("ok")
		} else {
			fmt.Println("end", err)
		}
	}
	return commands.Err()
}

// idler is a process that asks for direct sockets in a namespace of its own.
type idler struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	ns  *netns.NS
	pid string
}

func (l *lab) idle() *idler {
	l.t.Helper()
	ns, err := netns.New()
	if err != nil {
		l.t.Fatal(err)
	}
	i := &idler{cmd: exec.Command("cat"), ns: ns}
	i.cmd.Env = []string{"EXNET=1"}
	if i.in, err = i.cmd.StdinPipe(); err != nil {
		l.t.Fatal(err)
	}
	if err := ns.Start(i.cmd); err != nil {
		l.t.Fatal(err)
	}
	l.see(i.cmd.Process.Pid)
	i.pid = strconv.Itoa(i.cmd.Process.Pid)
	return i
}

func (i *idler) end() error {
	i.in.Close()
	return errors.Join(i.cmd.Wait(), i.ns.Close())
}

// held is what this process holds.
type held struct{ descriptors, goroutines, bytes int }

func holds(t *testing.T) held {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return held{len(list), runtime.NumGoroutine(), int(m.HeapInuse + m.StackInuse)}
}

// brokers is how many brokers of agents there are for these namespaces.
func brokers(t *testing.T, of []*idler) (n int) {
	t.Helper()
	all, err := control.Brokers()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range of {
		inode := i.ns.Inode()
		for _, b := range all {
			if strings.HasSuffix(b.Broker, fmt.Sprintf("/%d.sock", inode)) {
				n++
			}
		}
	}
	return n
}

// Many namespaces, and many that come and go, while direct connections stand: the agent holds
// little for each, and nothing of those that are gone; no connection is lost.
func TestRootScale(t *testing.T) {
	netnstest.NeedFDs(t, uint64(*scaleNamespaces*20+*scaleConnections*4))
	l := newLab(t)
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	many := l.start2(l.a, "many", "172.30.0.3:8080")
	if got := many.do("open %d", *scaleConnections); got != "ok" {
		t.Fatal(got)
	}
	l.within(timeLimit, "all connections are direct", func() bool {
		if got := many.do("ask"); got != "ok" {
			t.Fatal(got)
		}
		n := 0
		for _, x := range l.connections(l.a) {
			if x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0 {
				n++
			}
		}
		return n == *scaleConnections
	})
	before := holds(t)
	idlers := make([]*idler, *scaleNamespaces)
	for i := range idlers {
		idlers[i] = l.idle()
	}
	l.within(timeLimit, "all have a broker", func() bool { return brokers(t, idlers) == len(idlers) })
	after, n := holds(t), len(idlers)
	t.Logf("for each of %d namespaces: %d KiB, %.1f descriptors, %.1f goroutines (the test's own among them)", n, (after.bytes-before.bytes)/n>>10,
		float64(after.descriptors-before.descriptors)/float64(n), float64(after.goroutines-before.goroutines)/float64(n))
	for _, i := range idlers {
		if err := i.end(); err != nil {
			t.Error(err)
		}
	}
	const slack = 8 // such as the watcher's sockets, which came after before; less than one for each namespace
	gone := func() bool {
		now := holds(t)
		return now.descriptors <= before.descriptors+slack && now.goroutines <= before.goroutines+slack
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("before %+v, now %+v", before, holds(t))
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
	})
	l.within(timeLimit, "what was held for them is gone", gone)
	churned := 0
	for end := time.Now().Add(*scaleChurn); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		i := l.idle()
		if churned++; churned%3 == 0 { // some are found, and some have gone before
			time.Sleep(lookTime)
		}
		if got := many.do("ask"); got != "ok" {
			t.Fatal(got)
		}
		if err := i.end(); err != nil {
			t.Error(err)
		}
	}
	l.within(timeLimit, "what was held for those that came and went is gone", gone)
	if got := many.do("ask"); got != "ok" {
		t.Fatal(got)
	}
	for _, x := range l.connections(l.a) {
		if x.Mode != connstats.ModeDirect.String() {
			t.Errorf("a connection is not direct any more: %+v", x)
		}
	}
	t.Logf("%d namespaces came and went", churned)
}

// start2 starts this binary as a client that the agent sees.
func (l *lab) start2(n *netns.NS, role, arg string) *chat {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EXNET=1", roleEnv+"="+role+" "+arg)
	c := l.run(n, cmd)
	l.see(cmd.Process.Pid)
	return c
}
