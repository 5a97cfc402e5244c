package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// processorTime is what a process has used; resident is its memory, in KiB.
func processorTime(t *testing.T, pid int) (used time.Duration, resident int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	pages, _ := strconv.Atoi(f[21])
	const perSecond = 100 // USER_HZ, whatever the kernel's own is
	return time.Duration(user+system) * time.Second / perSecond, pages * os.Getpagesize() / 1024
}

// A container that announces thousands of listeners, and takes them back, without end, or connects
// and closes, takes a share of a processor from the agent, and little memory. Others are served
// meanwhile.
func TestRootListenerFlood(t *testing.T) {
	longtest.Nightly(t)
	const clients, listeners, namespaces, flooding = 3, 4000, 20, 5 * time.Second
	const share = 0.7 // of a processor: a quarter for what is measured, and what the pace does not know
	netnstest.NeedFDs(t, clients*listeners+2000)
	l := newLab(t)
	l.halt()
	agent := agentProcess(t, l).cmd.Process.Pid
	c := netnstest.New(t)
	l.attach(c, "br0", "v9", "172.30.0.4/24")
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	l.chat(c, inGo, "server", "172.30.0.4", 8081) // so that its namespace has a broker
	var idle []*idler
	for range namespaces {
		i := l.idle()
		t.Cleanup(func() {
			if err := i.end(); err != nil {
				t.Error(err)
			}
		})
		idle = append(idle, i)
	}
	l.within(timeLimit, "each namespace has a broker", func() bool { return brokers(t, idle) == namespaces })
	chat := l.chat(l.a, inC, "client", "172.30.0.3", 8080)
	l.becomesDirect(l.a, chat)

	var all []syscall.RawConn
	if err := c.Do(func() error {
		for range clients * listeners {
			ln, err := net.Listen("tcp4", "0.0.0.0:0")
			if err != nil {
				return err
			}
			t.Cleanup(func() { ln.Close() })
			r, err := ln.(*net.TCPListener).SyscallConn()
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// say tells of the time since it was called last. It spans both readings, each of which may
	// have to wait for a processor.
	last := time.Now()
	before, memory := processorTime(t, agent)
	say := func(what string) float64 {
		from := time.Now()
		used, now := processorTime(t, agent)
		took := time.Since(last)
		last = from
		used, before = used-before, used
		share := float64(used) / float64(took)
		t.Logf("%s: %.2f of a processor in %v, %d KiB, before %d KiB", what, share, took.Round(time.Millisecond), now, memory)
		return share
	}
	time.Sleep(2 * time.Second)
	say("before it")
	began := time.Now()
	end, ended := make(chan struct{}), make(chan error)
	for k := range clients {
		cl, err := client.Dial(client.Config{In: c.Do})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer func() { ended <- cl.Close() }()
			for {
				var announced []*client.Announcement
				for _, r := range all[k*listeners : (k+1)*listeners] {
					announced = append(announced, cl.Listen(client.Socket{Conn: r}, nil))
				}
				for _, a := range announced {
					a.Close()
				}
				select {
				case <-end:
					return
				default:
				}
			}
		}()
	}
	for time.Since(began) < flooding {
		l.becomesDirect(l.a, chat)
		time.Sleep(100 * time.Millisecond)
	}
	most := say("in the flood")
	close(end)
	for range clients {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	l.within(timeLimit, "the agent is idle again", func() bool {
		time.Sleep(time.Second)
		now := say("after it")
		most = max(most, now)
		return now < 0.1
	})
	began = time.Now()
	n := 0
	if err := c.Do(func() error {
		for ; time.Since(began) < flooding; n++ {
			conn, err := net.Dial("tcp", "172.30.0.3:8080")
			if err != nil {
				return err
			}
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset, so that it finds a port again
			conn.Close()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	most = max(most, say(fmt.Sprintf("in a flood of %d connections", n)))
	l.becomesDirect(l.a, chat)
	if most > share {
		t.Errorf("the agent has used %.2f of a processor, more than %v", most, share)
	}
	if _, now := processorTime(t, agent); now > memory+16<<10 {
		t.Errorf("the agent has %d KiB, and had %d before", now, memory)
	}
}
