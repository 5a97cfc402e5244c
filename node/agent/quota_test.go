package agent

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// fillRole connects to the broker of its namespace until the container has all clients that it may
// have, or a sixteenth of the descriptors, and stays until its standard input ends.
func fillRole(string) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	may := int(min(1024, limit.Cur/32))
	var all []*client.Client
	for range may + 20 {
		c, err := client.Dial(client.Config{})
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	for end := time.Now().Add(timeLimit); ; time.Sleep(50 * time.Millisecond) {
		n := 0
		for _, c := range all {
			if c.Connected() {
				n++
			}
		}
		if n >= may {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d clients are connected", n, may)
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	for _, c := range all {
		c.Close()
	}
	return err
}

// A container that has as many clients as it may have keeps no other one from direct connections
// which has the same network namespace and the same user, and none of its own becomes direct.
func TestRootContainerQuota(t *testing.T) {
	netnstest.NeedFDs(t, 4096)
	full := netnstest.Container(t, strings.Repeat("0123456789abcdef", 4))
	other := netnstest.Container(t, strings.Repeat("fedcba98", 8))
	l := newLab(t)
	in := func(group *os.File, as language, role string) *chat {
		t.Helper()
		cmd := l.program(as, role, "172.30.0.3", 8080)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		c := l.run(l.a, cmd)
		l.see(cmd.Process.Pid)
		return c
	}
	// direct has a client make connections, and reports whether one is direct both ways.
	direct := func(c *chat, connections int) bool {
		t.Helper()
		for range connections {
			if got := c.do("open"); got != "ok" {
				t.Fatal(got)
			}
			for range 20 {
				if got := c.do("ask 20 60"); got != "ok" {
					t.Fatal(got)
				}
			}
			for _, x := range l.connections(l.a) {
				if x.PID == c.cmd.Process.Pid && x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0 {
					return true
				}
			}
		}
		return false
	}
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	l.within(timeLimit, "one is direct, so that there is a broker", func() bool { return direct(in(other, inC, "client"), 1) })
	flood := in(full, inGo, "fill")
	flood.expect("ready")
	second := in(other, inC, "client")
	l.within(timeLimit, "one of another container is direct", func() bool { return direct(second, 1) })
	kept := in(full, inC, "client")
	if direct(kept, 3) {
		t.Error("one of the container that has all it may have is direct")
	}
	flood.in.Close()
	l.within(timeLimit, "one is, when the others have gone", func() bool { return direct(kept, 1) })
}
