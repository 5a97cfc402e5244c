package pressure

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// Without memory for a segment a connection stays on TCP, says why, and the program
// sees nothing of it: no error, no signal.
func TestRootNoMemory(t *testing.T) {
	longtest.Skip(t)
	const port, few = 7000, 4
	limits := []struct {
		name, kind string
		set        func(t *testing.T, p *process)
	}{
		// A segment is a file of 2 MiB to the kernel, which counts it as such.
		{"file size", "go", func(t *testing.T, p *process) { p.limit(t, unix.RLIMIT_FSIZE, unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) }},
		{"file size", "c", func(t *testing.T, p *process) { p.limit(t, unix.RLIMIT_FSIZE, unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) }},
		{"addresses", "c", func(t *testing.T, p *process) {
			now := addresses(t, p) + 1<<20
			p.limit(t, unix.RLIMIT_AS, unix.Rlimit{Cur: now, Max: now})
		}},
	}
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	for i, tt := range limits {
		for _, side := range []string{"client", "server"} {
			t.Run(fmt.Sprintf("%s of %s/sockets=%s", tt.name, side, tt.kind), func(t *testing.T) {
				port := port + i
				server := b.serve(t, tt.kind, "echo", port)
				client := a.run(t, tt.kind, "hold", b.addr, port, few)
				client.expect(t, "held")
				a.wantDirect(t, client, few)
				short := map[string]*process{"client": client, "server": server}[side]
				tt.set(t, short)
				client.tell(t, "add %d", few)
				client.expect(t, "added")
				for range 3 {
					client.round(t)
				}
				direct, whys := a.direct(t, client), a.whys(t, client)
				t.Logf("%d direct, the others: %v", direct, whys)
				switch {
				case direct < few:
					t.Errorf("%d connections are direct, %d were", direct, few)
				case side == "server" && tt.name == "file size": // it makes none
				case direct != few:
					t.Errorf("%d connections are direct: the limit is none", direct)
				case side == "client" && whys[connstats.WhyNoMemory.String()] != few:
					t.Errorf("the others: %v, want %v", whys, connstats.WhyNoMemory)
				}
				client.tell(t, "end")
				client.expect(t, "closed")
				server.end(t)
			})
		}
	}
}

// addresses is how much a process has mapped.
func addresses(t *testing.T, p *process) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}

// A /dev/shm that is full, or not there, plays no part: segments are memfds, of which
// only the programs' memory is the limit.
func TestRootFullShm(t *testing.T) {
	longtest.Skip(t)
	const port, few = 7000, 4
	l := newLab(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	layers(t, directKinds, func(t *testing.T, kind string) {
		fullShm := []string{"unshare", "--mount", "sh", "-ec",
			`mount -t tmpfs -o size=16k tmpfs /dev/shm; ! cat /dev/zero 2>/dev/null >/dev/shm/full; exec "$@"`, "sh"}
		b.wrap, a.wrap = fullShm, fullShm
		defer func() { b.wrap, a.wrap = nil, nil }()
		server := b.serve(t, kind, "echo", port)
		client := a.run(t, kind, "hold", b.addr, port, few)
		client.expect(t, "held")
		a.wantDirect(t, client, few)
		client.tell(t, "end")
		client.expect(t, "closed")
		server.end(t)
	})
}

// A node whose directory has no room does not start, and says what to do in one line.
func TestRootFullDirectory(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	ns, dir := netnstest.New(t), t.TempDir()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec",
		`mount -t tmpfs -o size=4k,mode=700 tmpfs "$1"; ! cat /dev/zero 2>/dev/null >"$1/full"; exec "$0" up --dir "$1" --netns "$2" --addr 10.2.0.1/24`,
		built.tun, dir, ns.Path())
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err == nil || strings.Contains(text, "\n") || !strings.Contains(text, "make room") {
		t.Errorf("%v: %q, want one line that says to make room", err, text)
	}
	t.Log(text)
}

// A program whose memory cgroup is full is killed by the kernel, or is slower; its
// peer, the daemons and other connections carry on.
func TestRootCgroup(t *testing.T) {
	longtest.Skip(t)
	if *cgroup == "" {
		t.Skip("needs a directory of a memory cgroup: -pressure.cgroup")
	}
	const port, limit = 7000, 64 << 20
	layers(t, directKinds, func(t *testing.T, kind string) {
		l := newLab(t, 2)
		a, b := l.nodes[0], l.nodes[1]
		dir := filepath.Join(*cgroup, fmt.Sprintf("exn-pressure-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			eventually(t, func() error { return os.Remove(dir) })
		})
		write := func(name, value string) error { return os.WriteFile(filepath.Join(dir, name), []byte(value), 0) }
		if errors.Join(write("memory.limit_in_bytes", strconv.Itoa(limit))) != nil {
			if err := write("memory.max", strconv.Itoa(limit)); err != nil {
				t.Fatal(err)
			}
		}
		server := b.serve(t, kind, "echo", port)
		other := a.run(t, kind, "hold", b.addr, port, 4)
		other.expect(t, "held")
		a.wantDirect(t, other, 4)
		victim := a.run(t, kind, "stream", b.addr, port, 1)
		victim.expect(t, "streaming")
		if err := write("cgroup.procs", strconv.Itoa(victim.PID())); err != nil {
			t.Fatal(err)
		}
		more := a.run(t, kind, "hold", b.addr, port, 1)
		more.expect(t, "held")
		if err := write("cgroup.procs", strconv.Itoa(more.PID())); err != nil {
			t.Fatal(err)
		}
		// More segments than the limit has room for.
		more.tell(t, "add %d", 400)
		more.tell(t, "round")
		select {
		case <-more.Done:
			t.Logf("it was killed: %v", more.Err)
		case <-time.After(20 * time.Second):
			t.Logf("it lives: %v", more.usage(t))
		}
		other.round(t)
		for _, n := range l.nodes {
			if _, err := n.status(); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-server.Done:
			t.Errorf("the server has ended: %v\n%s", server.Err, server.text())
		default:
		}
	})
}
