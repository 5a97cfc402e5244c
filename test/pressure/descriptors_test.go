package pressure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
)

// squeeze leaves a process only so many numbers for new descriptors, and returns what
// gives it back what it had, once.
func (p *process) squeeze(t *testing.T, more int) (restore func()) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, e := range entries {
		used[e.Name()] = true
	}
	limit := uint64(0) // the first number that is not for it: some of its own are beyond
	for free := 0; free < more || used[strconv.FormatUint(limit, 10)]; limit++ {
		if !used[strconv.FormatUint(limit, 10)] {
			free++
		}
	}
	var was unix.Rlimit
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	p.limit(t, unix.RLIMIT_NOFILE, unix.Rlimit{Cur: limit, Max: was.Max})
	restore = sync.OnceFunc(func() { p.limit(t, unix.RLIMIT_NOFILE, was) })
	t.Cleanup(restore)
	return restore
}

// whys are the reasons why connections of a process are not direct.
func (n *node) whys(t *testing.T, p *process) map[string]int {
	t.Helper()
	m := make(map[string]int)
	for _, c := range n.connections(t, p) {
		if c.Mode != connstats.ModeDirect.String() {
			m[c.Reason]++
		}
	}
	return m
}

// Who has no descriptors left stays on TCP with its new connections, and loses none of
// those that it has.
func TestRootDescriptors(t *testing.T) {
	longtest.Skip(t)
	const port, few, more = 7000, 4, 12
	layers(t, directKinds, func(t *testing.T, kind string) {
		l := newLab(t, 2)
		a, b := l.nodes[0], l.nodes[1]
		server := b.serve(t, kind, "echo", port)
		client := a.run(t, kind, "hold", b.addr, port, few)
		client.expect(t, "held")
		a.wantDirect(t, client, few)
		total := few

		t.Run("client", func(t *testing.T) {
			restore := client.squeeze(t, few)
			defer restore()
			client.tell(t, "add %d", few-1) // there is room for them, not for their segments
			client.expect(t, "added")
			total += few - 1
			for range 3 {
				client.round(t)
			}
			direct, whys := a.direct(t, client), a.whys(t, client)
			if no := whys[connstats.WhyNoMemory.String()]; no != total-direct || no == 0 {
				t.Errorf("%d of %d connections are direct, the others: %v, want %v", direct, total, whys, connstats.WhyNoMemory)
			}
			client.tell(t, "add %d", more)
			words := client.expect(t, "added")
			added, _ := strconv.Atoi(words[0])
			total += added
			if why := strings.ToLower(strings.Join(words[1:], " ")); !strings.Contains(why, "too many open files") {
				t.Errorf("the program got %d more, and was told %q", added, why)
			}
			client.round(t)
			t.Logf("%d of %d direct, the others: %v", direct, total, whys)
		})

		t.Run("server", func(t *testing.T) {
			before := b.direct(t, server)
			restore := server.squeeze(t, 3)
			client.tell(t, "add %d", more)
			words := client.expect(t, "added")
			added, _ := strconv.Atoi(words[0])
			total += added
			if added != more {
				t.Errorf("the client has %d connections more, want %d: %q", added, more, words)
			}
			if got := server.expect(t, "accept:"); strings.Join(got, " ") != "Too many open files" && strings.Join(got, " ") != "too many open files" {
				t.Errorf("the server was told %q", got)
			}
			// One of another program moves its bytes meanwhile.
			other := b.serve(t, kind, "echo", port+1)
			hold := a.run(t, kind, "hold", b.addr, port+1, 1)
			hold.expect(t, "held")
			a.wantDirect(t, hold, 1)
			if got := b.direct(t, server); got < before {
				t.Errorf("%d connections of the server are direct, %d were", got, before)
			}
			restore()
			server.expect(t, "accepting")
			client.round(t)
			hold.end(t)
			other.end(t)
		})

		t.Run("daemon", func(t *testing.T) {
			for _, n := range l.nodes {
				restore := n.squeeze(t, 0)
				client.tell(t, "add %d", more)
				if words := client.expect(t, "added"); words[0] != strconv.Itoa(more) {
					t.Errorf("added %q", words)
				}
				total += more
				// A program that begins now finds nobody to talk to, and is on TCP.
				other := a.run(t, kind, "hold", b.addr, port, 1)
				other.expect(t, "held")
				client.round(t)
				client.round(t)
				restore()
				other.end(t)
				whys := a.whys(t, client)
				t.Logf("%s has no descriptors: %v", n.Name, whys)
				if len(whys) == 0 {
					t.Errorf("%s: all are direct all the same", n.Name)
				}
			}
		})

		// When there are descriptors again, new connections are direct.
		before := a.direct(t, client)
		client.tell(t, "add %d", few)
		client.expect(t, "added")
		client.round(t)
		eventually(t, func() error {
			client.round(t)
			if got := a.direct(t, client); got < before+few {
				return fmt.Errorf("%d connections are direct, want %d", got, before+few)
			}
			return nil
		})
		client.tell(t, "end")
		client.expect(t, "closed")
		for _, n := range l.nodes {
			if lines := strings.Count(n.text(), "level=WARN"); lines == 0 || lines > 10 {
				t.Errorf("%s has logged %d lines:\n%s", n.Name, lines, n.text())
			}
		}
	})
}
